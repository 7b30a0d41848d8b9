"""Tally the verdicts on the lessons' claims over seeds and machines.

A claim is a sentence of a lesson that each run tests anew. `flips` compares the verdicts with those
of recorded runs.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from labkit import device
from labkit.format import shown
from labkit.ledger._record import completed
from labkit.ledger._recorded import pages_of
from labkit.ledger._store import find
from labkit.ledger.rows import Attempt, Claim, LessonAnswer, Machine, Run
from labkit.ledger.slugs import slug


class Tally(NamedTuple):
    """The verdicts of several runs on one claim.

    sentence  the claim, as the newest run says it
    verdicts  {(seed, machine, source): "holds", "fails" or "inconclusive"}. `machine` is (kind of
              machine, name of the host or None), which stays the same when software is updated.
              `source` is None for a run of this ledger, else the name of the parcel that a run of
              somebody else came in (`labkit ledger merge`)
    """

    sentence: str
    verdicts: dict[tuple, str]

    def outcome(self):
        """Return the number of runs with each verdict as a text: "holds in 4 of 5, fails in 1"."""
        counts = Counter(self.verdicts.values())
        text = f"holds in {counts['holds']} of {len(self.verdicts)}"
        for verdict, word in (("fails", "fails"), ("inconclusive", "open")):
            if counts[verdict]:
                text += f", {word} in {counts[verdict]}"
        return text

    def extent(self):
        """Return in words which runs count: "seeds 0 to 4 on 2 machines, 3 runs as reported"."""
        seeds = sorted({seed for seed, _, _ in self.verdicts})
        machines = {machine for _, machine, _ in self.verdicts}
        reported = sum(parcel is not None for _, _, parcel in self.verdicts)
        text = f"{_seeds_in_words(seeds)} on {_counted(len(machines), 'machine')}"
        if reported:
            text += f", {_counted(reported, 'run')} as reported"
        return text

    @property
    def changes(self):
        """Return whether two seeds have different verdicts on one machine."""
        return any(len(verdicts) > 1 for verdicts in self._by_machine())

    @property
    def contradicts(self):
        """Return whether the claim holds with one seed and fails with another, on one machine."""
        return any({"holds", "fails"} <= verdicts for verdicts in self._by_machine())

    def _by_machine(self):
        """Return sets of verdicts: one set for each machine and source, over all seeds."""
        verdicts = defaultdict(set)
        for (_, machine, parcel), verdict in self.verdicts.items():
            verdicts[machine, parcel].add(verdict)
        return verdicts.values()


def _counted(number, noun):
    """Return a number with its noun, in the plural unless it is 1."""
    return f"{number} {noun}{'s' if number != 1 else ''}"


def by_seed(profile, seeds=None):
    """Tally the claims over the completed runs of a profile: {(notebook, claim id): `Tally`}.

    profile  "quick", "lab" or "paper"
    seeds    seeds of the runs that count; None: any

    For each notebook, seed, machine and source (`Tally`) only the newest completed run counts. The
    tally has only the claims that the newest of these runs makes. A run of this ledger counts as
    newer than every reported one.
    """
    # The newest runs first, and ours before those that were reported.
    seeds = seeds and set(seeds)
    runs = [run for run in reversed(completed(profile=profile)) if not seeds or run.seed in seeds]
    runs.sort(key=lambda run: run.reported_by is not None)
    hosts = {row.run_key: row.host for row in find(Attempt)}
    kinds = {row.machine_key: row.kind for row in find(Machine)}

    def case(run):
        return (
            run.seed,
            (kinds.get(run.machine_key, run.machine_key), hosts.get(run.run_key)),
            run.reported_by,
        )

    # The claims of the newest run of each notebook and case.
    claims_by_run = defaultdict(dict)
    for row in find(Claim):
        claims_by_run[row.run_key][row.claim_id] = row
    newest = defaultdict(dict)
    for run in runs:
        newest[run.notebook].setdefault(case(run), claims_by_run[run.run_key])

    # The verdicts of all cases on each claim that the newest run makes.
    tallies = {}
    for notebook, claims_by_case in sorted(newest.items()):
        newest_claims = next(iter(claims_by_case.values()))
        for claim_id, row in newest_claims.items():
            verdicts = {}
            for key, claims in claims_by_case.items():
                if claim_id in claims:
                    verdicts[key] = claims[claim_id].verdict
            tallies[notebook, claim_id] = Tally(row.sentence, verdicts)
    return tallies


def _seeds_in_words(numbers):
    """Return seeds in words: "seed 3", "seeds 0 to 4", "seeds 0, 2 and 7"."""
    if len(numbers) == 1:
        return f"seed {numbers[0]}"
    if len(numbers) > 2 and numbers == list(range(numbers[0], numbers[-1] + 1)):
        return f"seeds {numbers[0]} to {numbers[-1]}"
    return f"seeds {', '.join(map(str, numbers[:-1]))} and {numbers[-1]}"


def flips(run_keys: Iterable[str], folder: str | Path) -> Any:
    """Compare the verdicts and answers of runs with recorded runs of the same profile and seed.

    Only runs that were recorded on this kind of machine are compared.

    run_keys  keys of the runs
    folder    folder of recorded results, such as artifacts/recorded
    returns   (lines, count). `lines` has a text for each claim whose verdict differs, for each
              answer whose interval does not overlap the recorded one, and for each answer that has
              a number in only one of the two runs. `count` is the number of claims and answers that
              were compared
    """
    run_keys = set(run_keys)
    before: dict = {}
    for tables in pages_of(device.describe(), folder):
        before |= _by_statement(tables["runs"], tables["claims"] + tables["lesson_answers"])
    runs = [run for run in find(Run) if run.run_key in run_keys]
    now = _by_statement(runs, find(Claim) + find(LessonAnswer))
    shared = sorted(before.keys() & now.keys())
    lines = [
        _line_of_difference(key, before[key], now[key])
        for key in shared
        if _differ(before[key], now[key])
    ]
    return lines, len(shared)


def _by_statement(runs, rows):
    """Index claims and answers: {(slug of the lesson, profile, seed, claim id or "answer"): row}.

    The slug has no number, so a lesson is found although its number has changed.

    runs  the `Run` rows that count
    rows  `Claim` and `LessonAnswer` rows; rows of other runs are left out
    """
    lesson_runs = {
        run.run_key: (slug(run.notebook, run.edition), run.profile, run.seed) for run in runs
    }
    statements = {}
    for row in rows:
        if row.run_key in lesson_runs:
            statements[*lesson_runs[row.run_key], getattr(row, "claim_id", "answer")] = row
    return statements


def _differ(then, now):
    """Return whether the outcomes differ: two verdicts on a claim, or the numbers of two answers.

    Two answers differ if their intervals do not overlap, or if only one has a number.

    then, now  two `Claim` rows or two `LessonAnswer` rows
    """
    if isinstance(then, Claim):
        return then.verdict != now.verdict
    if then.value is None or now.value is None:
        return then.value != now.value
    return max(then.low, now.low) > min(then.high, now.high)


def _line_of_difference(key, then, now):
    """Return a line of text on a claim or an answer: lesson, old outcome, new outcome, sentence.

    key  key of the row, as `_by_statement` makes it
    """
    lesson, _, _, statement = key
    outcomes = [
        getattr(row, "verdict", None) or f"{shown(row.low)} to {shown(row.high)}"
        for row in (then, now)
    ]
    return f"{lesson} {statement}: {' -> '.join(outcomes)}: {now.sentence}"
