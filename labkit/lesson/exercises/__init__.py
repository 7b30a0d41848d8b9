"""Exercises: what a task is, how a check says what is wrong, and where the lessons' exercises are
found.

The exercises lie in `notebooks/exercises/`, one module per lesson, with the reference answers and
the checks; they are imported as `labkit.lesson.exercises.lNN_name`, from whatever folder a lesson
runs in. A lesson's module holds `EXERCISES`, a tuple of `Exercise`; the teaching words and the
tests find it by themselves.
Wrong answers that a check must reject, and right ones written differently, stand in
`tests/lesson/answers/`.
"""

import contextlib
import copy
import functools
import importlib
import inspect
import pkgutil
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from labkit.errors import LessonError, require_known
from labkit.files import root
from labkit.lesson.exercises._script import Script, Wrong
from labkit.lesson.exercises._stubs import is_stub, unwritten  # noqa: F401 (others ask for them here)


def folder() -> Path:
    """Return the folder of the modules of exercises.

    A wheel of labkit brings no lessons, and has none.
    """
    return root() / "notebooks" / "exercises"


__path__.append(str(folder()))


class NotChecked(Exception):
    """The student edition cannot check this answer; the message says who does."""


def checked_when_handed_in(answer: Any) -> None:
    """Stand in for the check of an exercise where the student edition has none: raise
    `NotChecked`.
    """
    raise NotChecked(
        "It is written. The student edition has no check of it, because the check computes with "
        "the reference answer: it is checked when you hand the lesson in. Your answer is used below."
    )


@dataclass(frozen=True, kw_only=True)
class Exercise:
    """One task of a lesson. In a student edition it has no reference, and some have no check.

    id          words joined by dashes, unique in the course
    task        one sentence: what to write
    difficulty  1 (apply), 2 (combine) or 3 (think)
    importance  1 (may be skipped), 2 (worth doing) or 3 (the heart of the lesson)
    minutes     what it takes the typical reader
    hint        the idea, without the code
    reference   the answer: a function or class of the same name as the reader's, a plain value, or
                a `Script`
    verify      called with an answer; raises `Wrong` when it does not pass. Of an open task it
                checks a contract
    judged_by   an open task has no right answer: what the reader judges it by, such as "the ladder
                below"
    imports     lines that the reference needs above it
    """

    id: str
    task: str
    difficulty: int
    minutes: int
    hint: str
    reference: Any = None
    verify: Callable[[Any], None] = checked_when_handed_in
    imports: str = ""
    importance: int = 2
    judged_by: str = ""

    @property
    def name(self):
        """The reader's variable: the name of the function or class, else the id with
        underscores.
        """
        return getattr(self.reference, "__name__", self.id.replace("-", "_"))

    @property
    def solution(self):
        """The reference as source code that can stand in the reader's cell; None in a student
        edition.
        """
        if self.reference is None:
            return None
        if isinstance(self.reference, Script):
            return str(self.reference)
        if not callable(self.reference):
            return f"{self.name} = {self.reference!r}"
        source = inspect.getsource(self.reference).rstrip()
        return f"{self.imports}\n\n\n{source}" if self.imports else source

    def stand_in(self):
        """Return the reference answer, which later cells use until the reader's own passes.

        Raises  LessonError with the hint in a student edition, which has no answers
        """
        if self.reference is None:
            raise LessonError(
                f"The exercise {self.id!r} is not solved yet, and the cells below need it.",
                expected=self.task,
                found="no answer that passes; a student edition has no reference "
                "answer to go on with",
                fix=f"solve it, then run this cell again. Hint: {self.hint}",
            )
        return self.reference


def expect(condition: Any, message: str) -> None:
    """Raise `Wrong(message)` unless the condition holds."""
    if not condition:
        raise Wrong(message)


@contextlib.contextmanager
def in_pieces(description: str, *tensors: Any) -> Iterator[None]:
    """Turn the RuntimeError of an answer to tensors that are not in one piece into a `Wrong`
    with the description.
    """
    try:
        yield
    except RuntimeError as error:
        if all(tensor.is_contiguous() for tensor in tensors):
            raise
        raise Wrong(f"{description}, so that its numbers are not in one piece: {error}") from None


def expect_close(
    answer: Any, expected: float, quantity: str, *, tolerance: float = 1e-6, absolute: float = 1e-12
) -> None:
    """Raise `Wrong` unless an answer is a number near the expected one.

    quantity   which number it is, in words
    tolerance  relative to `expected`: 1e-6 allows the rounding of float32
    absolute   what is always allowed: a sum that should be 0 seldom is
    """
    try:
        number = float(answer)
    except (TypeError, ValueError):
        number = None
    if number is None or isinstance(answer, (str, bytes)):
        raise Wrong(f"{quantity}: expected a number, found {shorten(answer)}.")
    near = abs(number - expected) <= max(tolerance * abs(expected), absolute)
    expect(near, f"{quantity}: expected {readable(expected)}, found {readable(number)}.")


def untouched(answer: Callable) -> Callable:
    """Return the answer as a function that raises `Wrong` when a call changes what it was given."""

    def call(*arguments, **named):
        before = copy.deepcopy((arguments, named))
        result = answer(*arguments, **named)
        if not _same(before, (arguments, named)):
            raise Wrong(
                "Your function changes its input in place. The caller still needs "
                "that: make a new value."
            )
        return result

    return call


def _same(before, after):
    """True for two equal nested values of tuples, lists, dicts, arrays and numbers."""
    if isinstance(before, dict):
        return _same(list(before.items()), list(after.items()))
    if isinstance(before, (tuple, list)):
        return len(before) == len(after) and all(map(_same, before, after))
    return bool((before == after).all()) if hasattr(before, "shape") else before == after


def readable(number: float) -> str:
    """Return a large number in full with separators, others with six digits."""
    return f"{number:,.0f}" if 1e4 <= abs(number) < 1e12 else f"{number:.6g}"


def shorten(value: Any) -> str:
    """Return a value as text of at most 80 characters."""
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


@functools.cache
def registry():
    """Return the exercises of all lessons: {exercise id: Exercise}."""
    exercises = {}
    for module in modules():
        for exercise in importlib.import_module(f"{__name__}.{module}").EXERCISES:
            exercises[exercise.id] = exercise
    return exercises


def of(lesson):
    """Return the exercises of a lesson, such as "15_pruning_and_coding"; () for one without a
    module of exercises.
    """
    module = f"l{lesson}"
    return importlib.import_module(f"{__name__}.{module}").EXERCISES if module in modules() else ()


def modules():
    """Return the names of the modules of exercises, such as "l15_pruning_and_coding", in order."""
    names = sorted(module.name for module in pkgutil.iter_modules(__path__))
    return [name for name in names if re.match(r"l\d\d_", name)]


def find(exercise_id: str) -> Exercise:
    """Return the exercise of that id.

    Raises  LessonError where labkit has no exercises at all, LabError for an id that none of them
            has
    """
    if not modules():
        raise LessonError(
            "There are no exercises here.",
            expected=f"modules such as {folder() / 'l02_measuring_honestly.py'}",
            found="labkit without the folder of the course: a wheel of labkit brings no lessons",
            fix="get the folder of the course (a clone of its repository), and run the lesson "
            "with its labkit",
        )
    require_known(exercise_id, registry(), "exercise")
    return registry()[exercise_id]


# An exercise in a cell: exercise("id").check(...), or task = exercise("id") and then
# task.check(...)
_EXERCISE_CALL = re.compile(r"""\b(?:(\w+) = )?exercise\(["']([\w-]+)["']\)(\.check\()?""")
# A script that the reader writes: %%writefile FILE, and in the line below "# exercise: id"
_SCRIPT = re.compile(r"%%writefile [^\n]+\n# exercise: ([\w-]+)$", re.MULTILINE)


def ids_in(source):
    """Return the ids of the exercises that a cell has checked."""
    return [
        exercise_id
        for name, exercise_id, checked in _EXERCISE_CALL.findall(source)
        if checked or (name and re.search(rf"\b{name}\.check\(", source))
    ]


def script_in(source):
    """Return the id of the exercise whose script a cell writes to a file, or None."""
    script = _SCRIPT.match(source)
    return script[1] if script else None


def fill(source: str) -> str:
    """Return a notebook cell with the reader's stub replaced by the reference answer.

    source   the cell: a stub, then the line that calls `exercise("<id>").check(...)`; or a script
             written to a file
    returns  the reference, then that line; other cells come back unchanged
    """
    lines = source.splitlines()
    if script_in(source):
        return "\n".join([*lines[:2], _solution(script_in(source))])
    for exercise_id in ids_in(source):
        if isinstance(find(exercise_id).reference, Script):
            continue  # it stands in the cell that writes its file
        check = next(number for number, line in enumerate(lines) if ".check(" in line)
        named = [line for line in lines[:check] if _EXERCISE_CALL.search(line)]
        return "\n".join([_solution(exercise_id), "", *named, *lines[check:]])
    return source


def _solution(exercise_id):
    """Return the reference of an exercise as source code; a student edition has none."""
    solution = find(exercise_id).solution
    if solution is None:
        raise LessonError(
            "A student edition has no solutions to fill in.", fix="take the course with its answers"
        )
    return solution
