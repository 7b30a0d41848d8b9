"""Define the rows that a run leaves: the run itself, and what the functions of a lesson record."""

from dataclasses import dataclass
from typing import ClassVar

from labkit.ledger.rows._base import OfRun, row

PROFILES = ("quick", "lab", "paper")  # of a run; each measures more than the one before it
EDITION = 4  # of the course: the numbers of its lessons mean the same within one edition


@row("runs")
class Run(OfRun):
    """One execution of one notebook, or of one command that measures."""

    notebook: str
    profile: str
    seed: int
    started_utc: str
    machine_key: str
    commit: str | None = None
    batch_key: str | None = None
    edition: int = EDITION
    # the parcel of somebody else that it came in (`labkit ledger merge`)
    reported_by: str | None = None


@row("completions")
class Completion(OfRun):
    """The proof that a run went to its end; the last cell of a notebook writes this row.

    `cell_count` is the number of code cells that the kernel had executed by then. If an earlier
    cell writes the row, this number is smaller than the number of code cells in the notebook, and
    the row proves nothing.
    """

    notebook: str
    cell_count: int
    seconds: float
    finished_utc: str


@row("predictions", key=("run_key", "prediction_id"))
class Prediction(OfRun):
    """The reader's prediction and, once it is revealed, the result."""

    prediction_id: str
    question: str
    unit: str | None = None
    answer: str  # as text: an option, or a number in `unit`
    source: str  # "reader" or "default"
    result: str | None = None
    low: float | None = None  # what the run allows, where the result is a number with an interval
    high: float | None = None
    verdict: str | None = None  # "right", "close", "off" or "open" once revealed
    reason: str | None = None  # why it is open


@dataclass(frozen=True, kw_only=True)
class WithInterval(OfRun):
    """A sentence, and the number that supports it, with its interval."""

    FIGURES: ClassVar = ("value", "low", "high")  # all are known, or none
    sentence: str
    value: float | None = None
    low: float | None = None
    high: float | None = None
    unit: str | None = None
    basis: str | None = None  # what its interval rests on, where its kind has a name: "t, n = 3"
    reason: str | None = None  # why there is no value, or why it is doubtful


@row("claims", key=("run_key", "claim_id"))
class Claim(WithInterval):
    """A claim, which is a sentence of a lesson's text, and the verdict of this run on it."""

    claim_id: str
    verdict: str  # "holds", "fails" or "inconclusive"


@row("lesson_answers")
class LessonAnswer(WithInterval):
    """The answer of a lesson: a sentence to repeat, its number, its cause, and where it holds."""

    because: str
    holds_for: str
    not_for: str
    # the one to remember: a PNG, relative to artifacts/, with forward slashes
    picture: str | None = None
    picture_words: str | None = None  # what it shows, for a reader who cannot see it


@row("own_results")
class OwnResult(WithInterval):
    """The result of a lesson for the reader's own network; `sentence` says what the number is."""

    network: str  # its class
    weights: int | None = None
    stand_in: bool  # the course's own: the reader has not put another into my-lessons/mine.py


@row("decisions")
class Decision(OfRun):
    """What a reader would do after a lesson, in free text, and the numbers that support it."""

    text: str
    because: str  # "copies right, in %: 88 (from 85 to 91); file, in kB: 421"


@row("answers", key=("run_key", "exercise_id"))
class Answer(OfRun):
    """The verdict on the reader's answer to one exercise."""

    exercise_id: str
    # "passed", "wrong" or "unsolved"; "not checked" where a student edition has no check
    verdict: str
    message: str | None = None


@row("batches", key=("batch_key",))
class Batch:
    """One call of the runner over several notebooks; `status` is set when it ends."""

    batch_key: str
    settings: str  # JSON: profile, notebooks with their parameters, digest of their sources
    started_utc: str
    status: str | None = None  # "passed" or "failed"; None while running or after a kill


@row("attempts")
class Attempt(OfRun):
    """One execution of one notebook by the runner, as part of a batch, with one seed.

    A batch that is continued may try a notebook again; then the newest attempt counts.
    """

    batch_key: str
    notebook: str
    profile: str
    started_utc: str
    status: str  # "running", "passed", "failed" or "interrupted"
    reason: str | None = None  # why it did not pass
    seconds: float | None = None
    cells_done: int | None = None  # code cells that ran to their end
    cells_total: int | None = None
    output: str | None = None  # the executed notebook, relative to artifacts/, with forward slashes
    finished_utc: str | None = None
    seed: int | None = None  # where the batch had seeds
    host: str | None = None  # the machine of a cluster that it ran on
    reported_by: str | None = None  # as in `Run`
