"""How far the reader is: lessons run to their end, exercises solved, how near the predictions were.
From the ledger.

Counted is what the reader did: runs by hand, first answers only (a second time the result is
known), and exercises that passed in a run that did not fill in the reference answers. Rows of
others are not counted.
"""

import json
from dataclasses import dataclass
from statistics import median
from typing import NamedTuple

from labkit.ledger import find
from labkit.ledger.rows import Answer, Batch, Completion, Prediction, Run
from labkit.lesson.syllabus import lessons

MIN_GUESSES = 3  # of one kind, before anything is said of them
KINDS = {"x": "how many times", "%": "per cent", "points": "points", "s": "time", "ms": "time"}
KIND_OF_OTHER_UNITS = "counts and sizes"


class Step(NamedTuple):
    """What the reader did in one lesson; `near` and `off` count predictions, `state` is "done",
    "begun" or "".
    """

    name: str
    state: str
    solved: int
    exercises: int
    near: int
    off: int


@dataclass(frozen=True)
class Progress:
    """All lessons in order, and `leanings`: a sentence per kind of guess."""

    steps: list
    leanings: tuple

    def __bool__(self):
        return any(step.state or step.solved for step in self.steps)

    @property
    def following(self):
        """Return the name of the first lesson that is not done, or None."""
        for step in self.steps:
            if step.state != "done":
                return step.name
        return None

    def summary(self):
        """Return one sentence, such as "2 of 16 lessons run to their end, 5 of 41 exercises
        solved by you.".
        """
        done = sum(step.state == "done" for step in self.steps)
        solved = sum(step.solved for step in self.steps)
        exercises = sum(step.exercises for step in self.steps)
        near = sum(step.near for step in self.steps)
        guesses = near + sum(step.off for step in self.steps)
        predictions = f", {near} of {guesses} predictions near" if guesses else ""
        return (
            f"{done} of {len(self.steps)} lessons run to their end, "
            f"{solved} of {exercises} exercises solved by you{predictions}."
        )


def progress() -> Progress:
    """Return the `Progress` of the reader of this ledger."""
    runs = sorted(find(Run, reported_by=None), key=lambda run: run.started_utc)

    # Exercises count in runs that did not fill in the reference answers.
    batches_with_solutions = {
        row.batch_key for row in find(Batch) if json.loads(row.settings).get("solutions")
    }
    run_keys = {run.run_key for run in runs if run.batch_key not in batches_with_solutions}
    solved = {row.exercise_id for row in find(Answer, verdict="passed") if row.run_key in run_keys}

    # Lessons and guesses count in runs by hand.
    by_hand = {run.run_key: run.notebook for run in runs if run.batch_key is None}
    ended = {by_hand.get(row.run_key) for row in find(Completion)}
    guesses = _first_guesses(by_hand)
    steps = [_step(lesson, ended, set(by_hand.values()), solved, guesses) for lesson in lessons()]
    return Progress(steps, _leanings(guesses.values()))


def _first_guesses(by_hand):
    """Return {(notebook, question): `Prediction`}, the first answer that was given before the
    result was shown.

    by_hand  {run key: notebook}, the oldest run first
    """
    rows = find(Prediction, source="reader")
    first = {}
    for run_key, notebook in by_hand.items():
        for row in rows:
            if row.run_key == run_key and row.verdict:
                first.setdefault((notebook, row.prediction_id), row)
    return first


def _step(lesson, ended, begun, solved, guesses):
    rows = [row for (notebook, _), row in guesses.items() if notebook == lesson.name]
    state = ""
    if lesson.name in ended:
        state = "done"
    elif lesson.name in begun:
        state = "begun"
    return Step(
        name=lesson.name,
        state=state,
        solved=sum(task.id in solved for task in lesson.exercises),
        exercises=len(lesson.exercises),
        near=sum(_is_near(row) for row in rows),
        off=sum(row.verdict == "off" for row in rows),
    )


def _is_near(row):
    """Return whether a guess lies within a quarter of the result, or inside what the run allows."""
    return row.verdict in ("right", "close") or (row.verdict == "open" and not row.reason)


def _leanings(rows):
    """Return a sentence per kind of guess that was made often enough: how many were too high,
    and by how much.
    """
    pairs_by_kind = {}
    for row in rows:
        try:
            guess = float(row.answer)
            result = float(row.result)
        except (TypeError, ValueError):  # an option, or no result
            continue
        first_word = (row.unit or "").split(" ")[0]
        kind = KINDS.get(first_word, KIND_OF_OTHER_UNITS)
        pairs_by_kind.setdefault(kind, []).append((guess, result))
    return tuple(
        _leaning(kind, pairs) for kind, pairs in pairs_by_kind.items() if len(pairs) >= MIN_GUESSES
    )


def _leaning(kind, pairs):
    high = sum(guess > result for guess, result in pairs)
    low = sum(guess < result for guess, result in pairs)
    factors = [guess / result for guess, result in pairs if guess > 0 and result > 0]
    typically = ""
    if len(factors) >= MIN_GUESSES:
        typically = f"; {_typically(median(factors))}"
    return f"Your guesses about {kind}: {high} of {len(pairs)} too high, {low} too low{typically}."


def _typically(factor):
    distance = max(factor, 1 / factor)
    if distance < 1.1:
        return "the middle one is right"
    direction = "high" if factor > 1 else "low"
    return f"the middle one is {distance:.2g} times too {direction}"
