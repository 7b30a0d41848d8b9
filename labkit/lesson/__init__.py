"""The teaching words of every lesson: start, predict, reveal, claim, exercise, recap.

They never block: in JupyterLab a prediction is a widget, elsewhere its default is taken. What they record goes to the
ledger, so that the report can show it. `LABKIT_STRICT=1` turns an unsolved or wrong exercise into an error.
"""

import os
import random
import time
import uuid
from dataclasses import dataclass, replace

from labkit import device, ledger
from labkit.errors import LessonError
from labkit.ledger.rows import Answer, Claim, Completion, Prediction, Run
from labkit.lesson import cards, exercises, verdicts, widgets

PROFILES = ("quick", "lab", "paper")

_lesson = None  # the lesson this kernel runs; set by `start`


@dataclass(frozen=True)
class Lesson:
    """The running lesson: its notebook, profile, seed and key in the ledger."""

    notebook: str
    profile: str
    seed: int
    run_key: str
    started: float  # time.monotonic()

    def choose(self, *, quick, lab, paper=None):
        """The setting for this profile; `paper` is `lab` unless given."""
        return {"quick": quick, "lab": lab, "paper": lab if paper is None else paper}[self.profile]


def start(notebook, profile="lab", seed=0):
    """Begin a lesson: check the profile, seed everything, and open a run in the ledger. Returns the `Lesson`.

    notebook  the notebook's name without .ipynb
    profile   "quick" (a first look), "lab" (what a student runs) or "paper" (the scale of the published work)
    seed      0 to 2**32 - 1
    """
    global _lesson
    if profile not in PROFILES:
        raise LessonError(
            f"There is no profile {profile!r}.",
            expected=" or ".join(PROFILES),
            found=profile,
            fix="edit the cell tagged `parameters`, or pass `-p profile quick`",
        )
    seed_everything(seed)
    machine = device.describe()
    key = os.environ.get("LABKIT_RUN_KEY") or f"{notebook}-{uuid.uuid4().hex[:12]}"
    _lesson = Lesson(notebook, profile, seed, key, time.monotonic())
    run = Run(
        run_key=key,
        notebook=notebook,
        profile=profile,
        seed=seed,
        started_utc=ledger.now(),
        machine_key=machine.machine_key,
        commit=device.commit(),
        batch_key=os.environ.get("LABKIT_BATCH_KEY"),
    )
    ledger.add(machine, run)
    cards.show(cards.started(run, machine))
    return _lesson


def current():
    """The running lesson."""
    if _lesson is None:
        raise LessonError("No lesson has begun.", fix="run the cell that calls start(...), near the top, first")
    return _lesson


def predict(prediction_id, question, options=None, *, unit=None, default):
    """Ask the reader what they expect, before they see it.

    options  the answers to choose from; without them the answer is a number in `unit`
    default  the answer taken until the reader gives one (and when nobody is there)
    """
    lesson = current()
    if options is not None and default not in options:
        raise LessonError(
            f"The default of prediction {prediction_id!r} is not an option.", expected=list(options), found=default
        )
    earlier = stored_prediction(prediction_id)
    row = Prediction(
        run_key=lesson.run_key,
        prediction_id=prediction_id,
        question=question,
        unit=unit,
        answer=earlier.answer if earlier and earlier.source == "reader" else as_text(default),
        source=earlier.source if earlier else "default",
    )
    ledger.add(row)
    widgets.show_question(row, options, lambda answer: record_answer(prediction_id, answer))


def record_answer(prediction_id, answer):
    """Keep the reader's answer; one given after the result was shown is marked as such. Returns the row."""
    row = stored_prediction(prediction_id)
    row = replace(row, answer=as_text(answer), source="reader" if row.verdict is None else "reader, afterwards")
    if row.verdict is not None:
        row = replace(row, verdict=verdicts.judge(row.answer, row.result, row.low, row.high))
    ledger.add(row)
    return row


def reveal(prediction_id, result, *, reason=None, word="measured"):
    """Show what was measured beside what the reader expected.

    result  an option; a number, or anything with .low and .high: an answer inside that interval is not called off;
            None when this run cannot tell
    reason  why there is no result
    word    what the result is, where it is not "measured"
    """
    row = stored_prediction(prediction_id)
    if row is None:
        raise LessonError(f"Nothing was predicted under {prediction_id!r}.", fix="run the predict(...) cell first")
    low = high = None
    if not isinstance(result, str):
        low, high = verdicts.interval(result)
        result = None if low is None else as_text(verdicts.middle(result, low, high))
    row = replace(row, result=result, low=low, high=high, verdict=verdicts.judge(row.answer, result, low, high))
    row = replace(row, reason=(reason or "not measured in this run") if result is None else None)
    ledger.add(row)
    cards.show(cards.revealed(row, word))


def claim(claim_id, sentence, value, *, holds_if, unit=None, reason=None):
    """State a sentence of the text, and whether this run bears it out. Returns the verdict.

    value     a number; an interval (low, high) or anything with .low and .high; None when it could not be measured.
              A `Ratio` of timings is judged with its interval widened by its floor, and from 11 pairs on
    holds_if  called with the number, or with low and high; true when the sentence holds
    reason    why there is no value, or why this one proves nothing (a busy machine): the claim then stays open
    returns   "holds"; "fails"; "inconclusive" when only part of the interval supports it or there is no value
    """
    low, high = verdicts.interval(value)
    reason = reason or verdicts.doubt(value)
    row = Claim(
        run_key=current().run_key,
        claim_id=claim_id,
        sentence=sentence,
        verdict="inconclusive" if reason else verdicts.verdict(*verdicts.widened(value), holds_if),
        value=None if low is None else verdicts.middle(value, low, high),
        low=low,
        high=high,
        unit=unit,
        reason=reason,
    )
    if low is None and reason is None:
        row = replace(row, reason="not measured in this run")
    elif reason is None and row.verdict != verdicts.verdict(low, high, holds_if):
        row = replace(row, reason=f"the same code twice differed by up to {100 * value.floor:.2g} % here")
    ledger.add(row)
    cards.show(cards.claimed(row))


def keep(*measured, name=""):
    """Write measured rows to the ledger under this run, and return them (one row as itself, several as a tuple).

    name  given to rows that have none, so that two measurements of one kind stay apart
    """
    named = {"name": name} if name else {}
    kept = []
    for row in measured:
        fill = named if getattr(row, "name", None) == "" else {}
        kept.append(replace(row, run_key=current().run_key, **fill))
    ledger.add(*kept)
    return kept[0] if len(kept) == 1 else tuple(kept)


def explore(function, **ranges):
    """Show `function(name=value)` with a slider for each name; where nobody can move it, at its first value.

    ranges  name=(start, low, high), floats or ints
    """
    if not cards.interactive():
        function(**{name: start for name, (start, _, _) in ranges.items()})
        return
    widgets.show_sliders(function, ranges)


def exercise(exercise_id):
    """The exercise of that id; call `.check(your_answer)` on it."""
    return Task(exercises.find(exercise_id))


@dataclass(frozen=True)
class Task:
    """An exercise in the reader's hands."""

    exercise: exercises.Exercise

    def check(self, answer):
        """Judge the answer, show verdict and hint, and return what later cells should use.

        returns  the answer when it passes, else the reference answer
        raises   LessonError when it does not pass and LABKIT_STRICT=1
        """
        result, message = self.judge(answer)
        row = Answer(run_key=current().run_key, exercise_id=self.exercise.id, verdict=result, message=message or None)
        ledger.add(row)
        cards.show(cards.checked(self.exercise, row))
        if result == "passed":
            return answer
        if os.environ.get("LABKIT_STRICT") == "1":
            raise LessonError(f"Exercise {self.exercise.id!r} is {result}: {message}", fix=self.exercise.hint)
        return self.exercise.reference

    def judge(self, answer):
        """("passed" | "wrong" | "unsolved", message). Whatever the answer does, the lesson goes on."""
        if exercises.is_stub(answer):
            return "unsolved", "Nothing here yet. The reference answer is used below, so you can read on and return."
        try:
            self.exercise.verify(answer)
        except exercises.Wrong as error:
            return "wrong", str(error)
        except NotImplementedError:
            return "unsolved", "Not written yet. The reference answer is used below."
        except (Exception, SystemExit) as error:
            return "wrong", f"Your answer raised {type(error).__name__}: {error}"
        return "passed", ""


def recap():
    """End the lesson: predictions against results, claims and exercises, and the record that the run is complete.

    Call it in the last cell: the runner counts a notebook as passed only when its last cell wrote this record.
    """
    lesson = current()
    own = {name: of_this_run(ledger.load(name)) for name in ("predictions", "claims", "answers")}
    cards.show(cards.recap(own["predictions"], own["claims"], own["answers"]))
    ledger.add(
        Completion(
            run_key=lesson.run_key,
            notebook=lesson.notebook,
            cell_count=cell_count(),
            seconds=time.monotonic() - lesson.started,
            finished_utc=ledger.now(),
        )
    )


def of_this_run(frame):
    return frame[frame["run_key"] == current().run_key]


def cell_count():
    """How many cells this kernel has executed, the present one included; 0 outside a kernel."""
    shell = cards.shell()
    # The history, not shell.execution_count: IPython versions differ on whether that already counts the present cell.
    return len(shell.user_ns["In"]) - 1 if shell else 0


def stored_prediction(prediction_id):
    """This run's row of a prediction, or None."""
    found = ledger.find(Prediction, run_key=current().run_key, prediction_id=prediction_id)
    return found[0] if found else None


def seed_everything(seed):
    """Seed Python, NumPy and torch."""
    import numpy as np
    import torch

    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002 (libraries still draw from the global generator)
    torch.manual_seed(seed)


def as_text(value):
    """An option as it is; a number with six significant digits."""
    return value if isinstance(value, str) else f"{float(value):.6g}"
