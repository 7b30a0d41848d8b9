"""How the claims of the lessons fared over several seeds and machines: a table in Markdown, from the ledger."""

import re
from collections import Counter, defaultdict
from typing import NamedTuple

from labkit.errors import LedgerError
from labkit.ledger._store import find
from labkit.ledger.rows import Attempt, Claim, Completion, Machine, Run

VERDICTS = {"holds": "holds", "fails": "fails", "inconclusive": "open"}  # and what a table says of them
PAGE = """# The claims of the lessons, over several seeds

Profile `{profile}`, of each lesson, seed and machine the newest run. All verdicts: {total}.

| lesson | claim | verdict | over |
|---|---|---|---|
{lines}"""


class Tally(NamedTuple):
    """One claim over several runs.

    sentence  as the newest run says it
    verdicts  {(seed, machine, parcel that reported the run or None): "holds", "fails" or "inconclusive"}
              A machine is (its kind, host or None), so that an update of its software makes it no other one
    """

    sentence: str
    verdicts: dict[tuple, str]

    def outcome(self):
        """In words, such as "holds in 4 of 5, fails in 1"."""
        counts = Counter(self.verdicts.values())
        others = [
            f", {VERDICTS[verdict]} in {counts[verdict]}" for verdict in ("fails", "inconclusive") if counts[verdict]
        ]
        return f"holds in {counts['holds']} of {len(self.verdicts)}" + "".join(others)

    def extent(self):
        """Over what, such as "seeds 0 to 4 on 2 machines, 3 runs as reported"."""
        seeds = sorted({seed for seed, _, _ in self.verdicts})
        machines = {machine for _, machine, _ in self.verdicts}
        reported = sum(parcel is not None for _, _, parcel in self.verdicts)
        told = f", {_counted(reported, 'run')} as reported" if reported else ""
        return f"{_spans(seeds)} on {_counted(len(machines), 'machine')}{told}"


def _counted(number, noun):
    return f"{number} {noun}{'s' if number != 1 else ''}"


def by_seed(profile="lab"):
    """{(notebook, claim id): `Tally`} over the completed runs of a profile.

    Of each notebook, seed, machine and reporter only the newest completed run counts, and only the claims that the
    newest run makes: the newest of ours, where there is one.
    """
    done = {row.run_key for row in find(Completion)}
    runs = [run for run in find(Run, profile=profile) if run.run_key in done]
    runs.sort(key=lambda run: (run.reported_by is None, run.started_utc))
    hosts = {row.run_key: row.host for row in find(Attempt)}
    kinds = {row.machine_key: (row.title, row.cpu_isa) for row in find(Machine)}

    def case(run):
        return run.seed, (kinds.get(run.machine_key, run.machine_key), hosts.get(run.run_key)), run.reported_by

    newest = {(run.notebook, *case(run)): run for run in runs}
    last = {run.notebook: run.run_key for run in runs}
    claims = defaultdict(dict)
    for row in find(Claim):
        claims[row.run_key][row.claim_id] = row
    found = {}
    for notebook, run_key in sorted(last.items()):
        for claim, row in claims[run_key].items():
            made = [run for run in newest.values() if run.notebook == notebook and claim in claims[run.run_key]]
            verdicts = {case(run): claims[run.run_key][claim].verdict for run in made}
            found[notebook, claim] = Tally(row.sentence, verdicts)
    return found


def _spans(numbers):
    """Seeds in words: "seed 3", "seeds 0 to 4", "seeds 0, 2 and 7"."""
    if len(numbers) == 1:
        return f"seed {numbers[0]}"
    if len(numbers) > 2 and numbers == list(range(numbers[0], numbers[-1] + 1)):
        return f"seeds {numbers[0]} to {numbers[-1]}"
    return f"seeds {', '.join(map(str, numbers[:-1]))} and {numbers[-1]}"


def _text(words):
    """Words that Markdown shows as they are, also where a stranger wrote them."""
    return re.sub(r"([\\`*_\[\]<>|$#~&])", r"\\\1", words)


def as_markdown(profile="lab"):
    """The table of `by_seed` as a page in Markdown. Raises LedgerError when no run of the profile is complete."""
    found = by_seed(profile)
    if not found:
        done = {row.run_key for row in find(Completion)}
        others = sorted({run.profile for run in find(Run) if run.run_key in done} - {profile})
        raise LedgerError(
            f"No completed run of the profile {profile!r} makes a claim.",
            found=f"runs of the profile {' and '.join(others)}" if others else "no completed run",
            fix=" or ".join([*(f"--profile {each}" for each in others), f"labkit run --profile {profile}"]),
        )
    counts = Counter(verdict for tally in found.values() for verdict in tally.verdicts.values())
    total = ", ".join(f"{counts[verdict]} {verdict}" for verdict in VERDICTS)
    lines = [
        f"| {_text(notebook[:2])} | {_text(tally.sentence)} | {tally.outcome()} | {tally.extent()} |\n"
        for (notebook, _), tally in found.items()
    ]
    return PAGE.format(profile=profile, total=total, lines="".join(lines))
