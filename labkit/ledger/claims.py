"""How the claims of the lessons fared over several seeds and machines, and against recorded runs; from the ledger."""

from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from labkit import device
from labkit.ledger._recorded import completed, pages_of
from labkit.ledger._store import find
from labkit.ledger.rows import Attempt, Claim, LessonAnswer, Machine, Run
from labkit.ledger.shown import shown


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
        told = f"holds in {counts['holds']} of {len(self.verdicts)}"
        for verdict, word in (("fails", "fails"), ("inconclusive", "open")):
            if counts[verdict]:
                told += f", {word} in {counts[verdict]}"
        return told

    def extent(self):
        """Over what, such as "seeds 0 to 4 on 2 machines, 3 runs as reported"."""
        seeds = sorted({seed for seed, _, _ in self.verdicts})
        machines = {machine for _, machine, _ in self.verdicts}
        reported = sum(parcel is not None for _, _, parcel in self.verdicts)
        told = f", {_counted(reported, 'run')} as reported" if reported else ""
        return f"{_spans(seeds)} on {_counted(len(machines), 'machine')}{told}"

    @property
    def changes(self):
        """Whether, on one machine, another seed says otherwise."""
        return any(len(verdicts) > 1 for verdicts in self._by_machine())

    @property
    def contradicts(self):
        """Whether, on one machine, it holds with one seed and fails with another."""
        return any({"holds", "fails"} <= verdicts for verdicts in self._by_machine())

    def _by_machine(self):
        """The different verdicts of each machine and reporter."""
        said = defaultdict(set)
        for (_, *where), verdict in self.verdicts.items():
            said[*where].add(verdict)
        return said.values()


def _counted(number, noun):
    return f"{number} {noun}{'s' if number != 1 else ''}"


def by_seed(profile, seeds=None):
    """{(notebook, claim id): `Tally`} over the completed runs of a profile, with any seed or with these.

    Of each notebook, seed, machine and reporter only the newest completed run counts, and only the claims that the
    newest run makes: the newest of ours, where there is one.
    """
    runs = [run for run in reversed(completed(profile=profile)) if not seeds or run.seed in seeds]
    runs.sort(key=lambda run: run.reported_by is not None)
    hosts = {row.run_key: row.host for row in find(Attempt)}
    kinds = {row.machine_key: row.kind for row in find(Machine)}

    def case(run):
        return run.seed, (kinds.get(run.machine_key, run.machine_key), hosts.get(run.run_key)), run.reported_by

    claims, newest, found = defaultdict(dict), defaultdict(dict), {}
    for row in find(Claim):
        claims[row.run_key][row.claim_id] = row
    for run in runs:
        newest[run.notebook].setdefault(case(run), claims[run.run_key])
    for notebook, said in sorted(newest.items()):
        for claim, row in next(iter(said.values())).items():
            verdicts = {case: rows[claim].verdict for case, rows in said.items() if claim in rows}
            found[notebook, claim] = Tally(row.sentence, verdicts)
    return found


def _spans(numbers):
    """Seeds in words: "seed 3", "seeds 0 to 4", "seeds 0, 2 and 7"."""
    if len(numbers) == 1:
        return f"seed {numbers[0]}"
    if len(numbers) > 2 and numbers == list(range(numbers[0], numbers[-1] + 1)):
        return f"seeds {numbers[0]} to {numbers[-1]}"
    return f"seeds {', '.join(map(str, numbers[:-1]))} and {numbers[-1]}"


def flips(run_keys: Iterable[str], folder: str | Path) -> Any:
    """What these runs say otherwise than the recorded ones of this kind of machine, with the same profile and seed.

    folder   of recorded results, such as artifacts/recorded
    returns  (a line for each claim whose verdict is another, and for each answer whose interval lies apart from the
             recorded one or of which only one run has a number; how many claims and answers were compared)
    """
    before: dict = {}
    for tables in pages_of(device.describe(), folder):
        before |= _said(tables["runs"], tables["claims"] + tables["lesson_answers"])
    now = _said([run for run in find(Run) if run.run_key in run_keys], find(Claim) + find(LessonAnswer))
    both = sorted(before.keys() & now.keys())
    return [_flip(about, before[about], now[about]) for about in both if _differ(before[about], now[about])], len(both)


def _said(runs, rows):
    """{(notebook, profile, seed, claim id or "answer"): its row}"""
    about = {run.run_key: (run.notebook, run.profile, run.seed) for run in runs}
    return {(*about[row.run_key], getattr(row, "claim_id", "answer")): row for row in rows if row.run_key in about}


def _differ(then, now):
    if isinstance(then, Claim):
        return then.verdict != now.verdict
    if then.value is None or now.value is None:
        return then.value != now.value
    return max(then.low, now.low) > min(then.high, now.high)


def _flip(about, then, now):
    outcomes = [getattr(row, "verdict", None) or f"{shown(row.low)} to {shown(row.high)}" for row in (then, now)]
    return f"{about[0][:2]} {about[3]}: {' -> '.join(outcomes)}: {now.sentence}"
