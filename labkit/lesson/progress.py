"""Compute from the ledger how far the reader is: lessons done, exercises solved, predictions near.

Only the reader's own work counts:

- for lessons and predictions, runs by hand;
- for predictions, the first answer to each question, because later the result is known;
- for exercises, runs that did not fill in the reference answers.

Rows that came from others with `labkit ledger merge` do not count.
"""

import json
from dataclasses import dataclass
from statistics import median
from typing import NamedTuple

from labkit.ledger import find
from labkit.ledger.rows import Answer, Batch, Completion, Prediction, Run
from labkit.lesson.syllabus import lessons

MIN_GUESSES = 3  # of one kind, before a sentence is made of them
KINDS = {"x": "how many times", "%": "per cent", "points": "points", "s": "time", "ms": "time"}
KIND_OF_OTHER_UNITS = "counts and sizes"


class Step(NamedTuple):
    """What the reader did in one lesson.

    name       name of the lesson
    state      "done", "begun" or "" (not begun)
    solved     number of exercises that passed
    exercises  number of exercises of the lesson
    near       number of predictions that were near the result (`_is_near`)
    off        number of predictions with the verdict "off"
    """

    name: str
    state: str
    solved: int
    exercises: int
    near: int
    off: int


@dataclass(frozen=True)
class Progress:
    """How far the reader is in the course.

    steps     list of a `Step` for each lesson, in order
    leanings  sentences on the reader's guesses, one for each kind of guess: are they too high or
              too low?
    """

    steps: list
    leanings: tuple

    def __bool__(self):
        """Return whether the reader has begun anything."""
        return any(step.state or step.solved for step in self.steps)

    @property
    def following(self):
        """Return the name of the first lesson that is not done; None if all are done."""
        for step in self.steps:
            if step.state != "done":
                return step.name
        return None

    def summary(self):
        """Return the progress in one sentence.

        An example: "2 of 16 lessons run to their end, 5 of 41 exercises solved by you, 7 of 12
        predictions near."
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
    """Return the `Progress` of the reader, from the ledger."""
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
    """Return the reader's first answer to each question: {(notebook, prediction id): `Prediction`}.

    Answers that were given after the result was shown do not count.

    by_hand  {run key: notebook} of the runs by hand, the oldest first
    """
    rows = find(Prediction, source="reader")
    first = {}
    for run_key, notebook in by_hand.items():
        for row in rows:
            if row.run_key == run_key and row.verdict:
                first.setdefault((notebook, row.prediction_id), row)
    return first


def _step(lesson, ended, begun, solved, guesses):
    """Return the `Step` of a lesson.

    lesson   a `LessonPage`
    ended    names of the notebooks that ran to their end
    begun    names of the notebooks that were started
    solved   ids of the exercises that passed
    guesses  as `_first_guesses` returns them
    """
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
    """Return whether a guess is right, close, or inside the interval of the result.

    row  a `Prediction` with its verdict
    """
    return row.verdict in ("right", "close") or (row.verdict == "open" and not row.reason)


def _leanings(rows):
    """Return a tuple of sentences on the reader's guesses, one for each kind of guess.

    A sentence says how many guesses were too high, and by what factor. A kind is, for example,
    "time" or "per cent". A kind with fewer than `MIN_GUESSES` guesses gets no sentence.

    rows  `Prediction` rows
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
    """Return the sentence on the guesses of one kind.

    pairs  list of (guess, result)
    """
    high = sum(guess > result for guess, result in pairs)
    low = sum(guess < result for guess, result in pairs)
    factors = [guess / result for guess, result in pairs if guess > 0 and result > 0]
    typically = ""
    if len(factors) >= MIN_GUESSES:
        typically = f"; {_typically(median(factors))}"
    return f"Your guesses about {kind}: {high} of {len(pairs)} too high, {low} too low{typically}."


def _typically(factor):
    """Return what the middle guess is, in words: "the middle one is 2 times too high".

    factor  median of guess / result
    """
    distance = max(factor, 1 / factor)
    if distance < 1.1:
        return "the middle one is right"
    direction = "high" if factor > 1 else "low"
    return f"the middle one is {distance:.2g} times too {direction}"
