"""How the claims of the lessons fared over several seeds: a table in Markdown, from the ledger."""

from collections import Counter, defaultdict

from labkit.errors import LedgerError
from labkit.ledger._store import find
from labkit.ledger.rows import Claim, Completion, Run

VERDICTS = ("holds", "fails", "inconclusive")


def by_seed(profile="lab", *, path=None):
    """{(notebook, claim id): (sentence of the newest run, {seed: verdict})} over the completed runs of a profile.

    Of each notebook and seed only the newest completed run counts, and only the claims that its newest run makes.
    """
    done = {row.run_key for row in find(Completion, path=path)}
    runs = sorted(find(Run, path=path, profile=profile), key=lambda run: run.started_utc)
    newest = {(run.notebook, run.seed): run.run_key for run in runs if run.run_key in done}
    last = {run.notebook: run.run_key for run in runs if run.run_key in done}
    rows = defaultdict(dict)
    for row in find(Claim, path=path):
        rows[row.run_key][row.claim_id] = row
    found = {}
    for notebook, run_key in sorted(last.items()):
        of_seed = {seed: rows[key] for (name, seed), key in sorted(newest.items()) if name == notebook}
        for claim, row in rows[run_key].items():
            verdicts = {seed: made[claim].verdict for seed, made in of_seed.items() if claim in made}
            found[notebook, claim] = (row.sentence, verdicts)
    return found


def as_markdown(profile="lab", *, path=None):
    """The table of `by_seed` as a page in Markdown. Raises LedgerError when no run of the profile is complete."""
    found = by_seed(profile, path=path)
    if not found:
        raise LedgerError(
            f"No completed run of the profile {profile!r} makes a claim.", fix=f"labkit run --profile {profile}"
        )
    counts = Counter(verdict for _, verdicts in found.values() for verdict in verdicts.values())
    total = ", ".join(f"{counts[verdict]} {verdict}" for verdict in VERDICTS)
    page = [
        "# The claims of the lessons, over several seeds",
        "",
        f"Profile `{profile}`. A number says for how many seeds the claim got this verdict. All runs: {total}.",
        "",
        "| lesson | claim | seeds | holds | fails | inconclusive |",
        "|---|---|--:|--:|--:|--:|",
    ]
    for (notebook, _), (sentence, verdicts) in found.items():
        each = Counter(verdicts.values())
        numbers = " | ".join(str(each[verdict] or "") for verdict in VERDICTS)
        page.append(f"| {notebook[:2]} | {sentence.replace('|', '&#124;')} | {len(verdicts)} | {numbers} |")
    return "\n".join(page) + "\n"
