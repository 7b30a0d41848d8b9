"""What a batch has to do: each notebook, once per seed; and the try at it that the ledger keeps."""

from dataclasses import dataclass

from labkit import ledger
from labkit.errors import LabError
from labkit.ledger.rows import Attempt
from labkit.runner import sources

MOST_SEEDS = 10_000


@dataclass(frozen=True)
class Task:
    """One notebook with its parameters; `seed` is None where no seeds were asked for."""

    source: sources.Source
    parameters: dict
    seed: int | None = None

    @property
    def notebook(self):
        return self.source.name


def label(one):
    """A `Task`, or an `Attempt` at it, in words: "05_batch_size_and_minima, seed 3"."""
    return one.notebook if one.seed is None else f"{one.notebook}, seed {one.seed}"


def seeds_of(text):
    """(0, 1, 2) of "0:3", (7,) of "7", (1, 5) of "1,5"; LabError for anything else."""
    try:
        first, colon, end = text.partition(":")
        seeds = tuple(range(int(first), int(end)) if colon else dict.fromkeys(map(int, text.split(","))))
        if 0 < len(seeds) <= MOST_SEEDS and min(seeds) >= 0:
            return seeds
    except ValueError:
        pass
    what = f"{text!r} names no seeds."
    expected = f"one or more seeds from 0 on, at most {MOST_SEEDS:,}"
    raise LabError(what, expected=expected, found=text, fix="--seeds 0:5 for the seeds 0 to 4, or --seeds 1,7")


def listed(found, settings):
    """The tasks of a batch: for each seed all notebooks, in order.

    found     list of `Source`
    settings  `labkit.runner.settings.Settings`
    errors    LabError when a parameter does not fit, or when seeds are given twice
    """
    if settings.seeds and "seed" in settings.parameters:
        fix = "leave out one of the two"
        raise LabError("The seed is given twice.", expected="seeds or a parameter `seed`", found="both", fix=fix)
    asked = {"profile": settings.profile, **settings.parameters}
    each = [(seed, asked if seed is None else {**asked, "seed": seed}) for seed in settings.seeds or (None,)]
    return [Task(source, sources.typed(source, wanted), seed) for seed, wanted in each for source in found]


def attempt(task, batch_key, settings):
    """The next try at a task as an `Attempt` row; where its output goes depends on profile, solutions and seed."""
    profile, which = settings.profile, "" if task.seed is None else f"-seed-{task.seed}"
    number = 1 + len(ledger.find(Attempt, batch_key=batch_key, notebook=task.notebook, seed=task.seed))
    return Attempt(
        run_key=f"{batch_key}/{task.notebook}{which}/{number}",
        batch_key=batch_key,
        notebook=task.notebook,
        profile=profile,
        seed=task.seed,
        started_utc=ledger.now(),
        status="running",
        output=f"executed/{profile}{'-solved' if settings.solutions else ''}{which}/{task.notebook}.ipynb",
    )
