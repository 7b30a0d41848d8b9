"""What a batch has to do, and how: each notebook once per seed, and the try at it that the ledger holds."""

from dataclasses import dataclass, field

from labkit import device, ledger
from labkit.errors import LabError
from labkit.ledger.rows import Attempt
from labkit.runner import sources

# Most seconds for one cell and for one whole notebook, and seconds that a notebook takes as a rule.
PROFILES = {"quick": (300, 900, 45), "lab": (3600, 4 * 3600, 300), "paper": (24 * 3600, 72 * 3600, 3600)}
MOST_SEEDS = 10_000


@dataclass(frozen=True, kw_only=True)
class BatchSettings:
    """How to run a batch.

    profile          "quick", "lab" or "paper": passed to each notebook as its parameter `profile`
    parameters       further parameters, as the types of the notebook's defaults
    seeds            run each notebook once per seed, its parameter `seed`; (): once, with the parameters as they are
    cluster          the address of a dask scheduler, or "local": see `labkit.runner.cluster`; None: on this machine
    fresh            start over even if an earlier batch can be continued
    solutions        fill the reference answers into the cells tagged `exercise`; "both": run the exercises as they are
                     given, and afterwards check that each reference answer passes in a fresh process
    strict           an unsolved or wrong exercise is an error, found afterwards by `labkit.lesson.grading`
    together         so many notebooks at a time, measuring ones too: what they measure then means nothing. None: at
                     most two, and those that measure alone
    cell_deadline_s  most seconds for one cell; None means the profile's
    """

    profile: str = "quick"
    parameters: dict = field(default_factory=dict)
    seeds: tuple[int, ...] = ()
    cluster: str | None = None
    fresh: bool = False
    solutions: bool | str = False
    strict: bool = False
    together: int | None = None
    cell_deadline_s: float | None = None

    def at_a_time(self):
        """How many notebooks run at the same time."""
        return self.together or min(2, device.usable_cores())


@dataclass(frozen=True)
class NotebookTask:
    """One notebook with its parameters; `seed` is None when no seeds were asked for."""

    source: sources.Notebook
    parameters: dict
    seed: int | None = None

    @property
    def notebook(self):
        """The name of the notebook."""
        return self.source.name


def label(one):
    """A `NotebookTask`, or an `Attempt` at it, in words: "05_batch_size_and_minima, seed 3"."""
    return one.notebook if one.seed is None else f"{one.notebook}, seed {one.seed}"


def seeds_of(text: str) -> tuple[int, ...]:
    """(0, 1, 2) of "0:3", (7,) of "7", (1, 5) of "1,5"; LabError for anything else."""
    try:
        first, colon, end = text.partition(":")
        seeds = tuple(range(int(first), int(end)) if colon else dict.fromkeys(map(int, text.split(","))))
        if 0 < len(seeds) <= MOST_SEEDS and min(seeds) >= 0:
            return seeds
    except ValueError:
        pass
    raise LabError(
        f"{text!r} names no seeds.",
        expected=f"one or more seeds from 0 on, at most {MOST_SEEDS:,}",
        fix="--seeds 0:5 for the seeds 0 to 4, or --seeds 1,7",
    )


def listed(notebooks, settings):
    """The tasks of a batch: for each seed all notebooks, in order.

    notebooks  list of `labkit.runner.sources.Notebook`
    settings   `BatchSettings`
    errors     LabError when a parameter does not fit, or when seeds are given twice
    """
    if settings.seeds and "seed" in settings.parameters:
        raise LabError(
            "The seed is given twice.", expected="seeds or a parameter `seed`", fix="leave out one of the two"
        )
    found = []
    for seed in settings.seeds or [None]:
        wanted = {"profile": settings.profile, **settings.parameters}
        if seed is not None:
            wanted["seed"] = seed
        found += [NotebookTask(each, sources.typed(each, wanted), seed) for each in notebooks]
    return found


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
        output=f"executed/{profile}{'-solved' if settings.solutions is True else ''}{which}/{task.notebook}.ipynb",
    )
