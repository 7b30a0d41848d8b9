"""List the tasks of a batch, each notebook once per seed, and make their `Attempt` rows."""

from dataclasses import dataclass, field
from typing import NamedTuple

from labkit import device, ledger
from labkit.errors import LabError
from labkit.ledger.rows import Attempt
from labkit.runner import sources

MAX_SEEDS = 10_000


class Limits(NamedTuple):
    """Times of a profile, in seconds.

    cell_s      longest time for one cell
    notebook_s  longest time for a whole notebook
    usual_s     time that a notebook usually takes
    """

    cell_s: int
    notebook_s: int
    usual_s: int


LIMITS = {
    "quick": Limits(300, 900, 45),
    "lab": Limits(3600, 4 * 3600, 300),
    "paper": Limits(24 * 3600, 72 * 3600, 3600),
}


@dataclass(frozen=True, kw_only=True)
class BatchSettings:
    """How to run a batch.

    profile          "quick", "lab" or "paper", which each notebook gets as its parameter `profile`
    parameters       {name: value} of further parameters of the notebooks
    seeds            run each notebook once per seed, which it gets as its parameter `seed`. (): run
                     it once, with the parameters as they are
    cluster          the address of a dask scheduler; "local": a cluster on this machine, to try it;
                     None: no cluster
    fresh            True: start a new batch even if an earlier one can be continued
    solutions        True: fill the reference answers into the cells tagged `exercise`. "both": run
                     the exercises as they are given, and afterwards check that each reference
                     answer passes in a fresh process
    strict           True: a notebook with an unsolved or wrong exercise fails. After the run,
                     `labkit.classroom.grading` checks the exercises
    together         run so many notebooks at a time, also those that measure times: their times
                     then mean nothing. None: at most two at a time, and alone those that measure
                     times
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
        """Return how many notebooks run at the same time."""
        return self.together or min(2, device.usable_cores())

    def runs_alone(self, task):
        """Return whether a task must run alone, because its notebook measures times."""
        return task.source.measures and not self.together


@dataclass(frozen=True)
class NotebookTask:
    """One notebook with its parameters.

    source      the `Notebook`
    parameters  {name: value}, among them the profile and the seed
    seed        the seed; None where the batch has no seeds
    """

    source: sources.Notebook
    parameters: dict
    seed: int | None = None

    @property
    def notebook(self):
        """Return the name of the notebook."""
        return self.source.name


def label(task):
    """Return the label of a `NotebookTask` or an `Attempt`: "06_batch_size_and_minima, seed 3"."""
    return task.notebook if task.seed is None else f"{task.notebook}, seed {task.seed}"


def seeds_of(text: str) -> tuple[int, ...]:
    """Return the seeds that a text names: (0, 1, 2) for "0:3", (7,) for "7", (1, 5) for "1,5".

    Raises  LabError for a text of another form, for a negative seed, and for more than MAX_SEEDS
            seeds
    """
    try:
        first, colon, end = text.partition(":")
        if colon:
            seeds = tuple(range(int(first), int(end)))
        else:
            seeds = tuple(dict.fromkeys(map(int, text.split(","))))
        if 0 < len(seeds) <= MAX_SEEDS and min(seeds) >= 0:
            return seeds
    except ValueError:
        pass
    raise LabError(
        f"{text!r} names no seeds.",
        expected=f"one or more seeds from 0 on, at most {MAX_SEEDS:,}",
        fix="--seeds 0:5 for the seeds 0 to 4, or --seeds 1,7",
    )


def listed(notebooks, settings):
    """Return the list of `NotebookTask`s of a batch: for each seed all notebooks, in order.

    notebooks  list of `labkit.runner.sources.Notebook`
    settings   a `BatchSettings`
    errors     LabError when a parameter does not fit, and when the settings have both seeds and a
               parameter `seed`
    """
    if settings.seeds and "seed" in settings.parameters:
        raise LabError(
            "The seed is given twice.",
            expected="seeds or a parameter `seed`",
            fix="leave out one of the two",
        )
    tasks = []
    for seed in settings.seeds or [None]:
        parameters = {"profile": settings.profile, **settings.parameters}
        if seed is not None:
            parameters["seed"] = seed
        for notebook in notebooks:
            tasks.append(NotebookTask(notebook, sources.typed(notebook, parameters), seed))
    return tasks


def attempt(task, batch_key, settings):
    """Return a new `Attempt` row for a task, with the next free run key.

    The path of its output follows from profile, solutions and seed.

    task       a `NotebookTask`
    batch_key  key of the batch
    settings   a `BatchSettings`
    """
    earlier = ledger.find(Attempt, batch_key=batch_key, notebook=task.notebook, seed=task.seed)
    of_seed = "" if task.seed is None else f"-seed-{task.seed}"
    solved = "-solved" if settings.solutions is True else ""
    return Attempt(
        # `Lesson.batch_key` reads the part before the first slash
        run_key=f"{batch_key}/{task.notebook}{of_seed}/{len(earlier) + 1}",
        batch_key=batch_key,
        notebook=task.notebook,
        profile=settings.profile,
        seed=task.seed,
        started_utc=ledger.now(),
        status="running",
        output=f"executed/{settings.profile}{solved}{of_seed}/{task.notebook}.ipynb",
    )
