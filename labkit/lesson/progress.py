"""How far the reader is: lessons run to their end, exercises solved, how near the predictions were. From the ledger.

Counted is what the reader did: runs by hand, first answers only (a second time the result is known), and exercises that
passed in a run that did not fill in the reference answers. Rows of others are not counted.
"""

import json
from dataclasses import dataclass
from statistics import median
from typing import NamedTuple

from labkit.ledger import find
from labkit.ledger.rows import Answer, Batch, Completion, Prediction, Run
from labkit.lesson.syllabus import lessons

FEWEST = 3  # guesses of one kind, before anything is said of them
KINDS = {"x": "how many times", "%": "per cent", "points": "points", "s": "time", "ms": "time"}
OTHER = "counts and sizes"


class Step(NamedTuple):
    """What the reader did in one lesson; `near` and `off` count predictions, `state` is "done", "begun" or ""."""

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
        """The first lesson that is not done, or None."""
        return next((step.name for step in self.steps if step.state != "done"), None)

    def summary(self):
        """One sentence, such as "2 of 16 lessons run to their end, 5 of 41 exercises solved by you."."""
        done = sum(step.state == "done" for step in self.steps)
        solved = sum(step.solved for step in self.steps)
        exercises = sum(step.exercises for step in self.steps)
        near = sum(step.near for step in self.steps)
        guesses = near + sum(step.off for step in self.steps)
        told = f", {near} of {guesses} predictions near" if guesses else ""
        return (
            f"{done} of {len(self.steps)} lessons run to their end, "
            f"{solved} of {exercises} exercises solved by you{told}."
        )


def progress() -> Progress:
    """The `Progress` of the reader of this ledger."""
    runs = sorted(find(Run, reported_by=None), key=lambda run: run.started_utc)
    lent = {row.batch_key for row in find(Batch) if json.loads(row.settings).get("solutions")}
    own = {run.run_key for run in runs if run.batch_key not in lent}
    by_hand = {run.run_key: run.notebook for run in runs if run.batch_key is None}
    ended = {by_hand.get(row.run_key) for row in find(Completion)}
    solved = {row.exercise_id for row in find(Answer, verdict="passed") if row.run_key in own}
    guesses = _first_guesses(by_hand)
    steps = [_step(lesson, ended, set(by_hand.values()), solved, guesses) for lesson in lessons()]
    return Progress(steps, _leanings(guesses.values()))


def _first_guesses(by_hand):
    """{(notebook, question): `Prediction`}, the first answer to it that was given before the result was shown."""
    rows, first = find(Prediction, source="reader"), {}
    for run_key, notebook in by_hand.items():  # the oldest run first
        for row in rows:
            if row.run_key == run_key and row.verdict:
                first.setdefault((notebook, row.prediction_id), row)
    return first


def _step(lesson, ended, begun, solved, guesses):
    own = [row for (notebook, _), row in guesses.items() if notebook == lesson.name]
    return Step(
        name=lesson.name,
        state="done" if lesson.name in ended else "begun" if lesson.name in begun else "",
        solved=sum(task.id in solved for task in lesson.exercises),
        exercises=len(lesson.exercises),
        near=sum(_is_near(row) for row in own),
        off=sum(row.verdict == "off" for row in own),
    )


def _is_near(row):
    """Whether a guess lies within a quarter of the result, or inside what the run allows."""
    return row.verdict in ("right", "close") or (row.verdict == "open" and not row.reason)


def _leanings(rows):
    """A sentence per kind of guess that was made often enough: how many were too high, and by how much."""
    pairs = {}
    for row in rows:
        try:
            guess, result = float(row.answer), float(row.result)
        except (TypeError, ValueError):  # an option, or no result
            continue
        first = (row.unit or "").split(" ")[0]
        pairs.setdefault(KINDS.get(first, OTHER), []).append((guess, result))
    return tuple(_leaning(kind, found) for kind, found in pairs.items() if len(found) >= FEWEST)


def _leaning(kind, pairs):
    high = sum(guess > result for guess, result in pairs)
    low = sum(guess < result for guess, result in pairs)
    factors = [guess / result for guess, result in pairs if guess > 0 and result > 0]
    by = f"; {_typically(median(factors))}" if len(factors) >= FEWEST else ""
    return f"Your guesses about {kind}: {high} of {len(pairs)} too high, {low} too low{by}."


def _typically(factor):
    if max(factor, 1 / factor) < 1.1:
        return "the middle one is right"
    return f"the middle one is {max(factor, 1 / factor):.2g} times too {'high' if factor > 1 else 'low'}"
