"""Define what an exercise is, help its check to explain a mistake, and find the lessons' exercises.

The exercises lie in `notebooks/exercises/`, in one module for each lesson. A module holds
`EXERCISES`, a tuple of `Exercise` with reference answers and checks. It is imported as
`labkit.lesson.exercises.lNN_name`, whatever folder a lesson runs in; the functions of
`labkit.lesson` and the tests find the module by this name.

Two kinds of answers to try the checks with lie in `tests/lesson/answers/`: wrong answers, which a
check must reject, and right answers written differently from the reference.
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
    """Return the folder of the modules of exercises, notebooks/exercises.

    It does not exist if labkit was installed from a wheel, which does not contain the lessons.
    """
    return root() / "notebooks" / "exercises"


__path__.append(str(folder()))


class NotChecked(Exception):
    """Raised where a student edition cannot check an answer; the message says when that is done."""


def checked_when_handed_in(answer: Any) -> None:
    """Raise `NotChecked`, as the check of an exercise that a student edition cannot check."""
    raise NotChecked(
        "It is written. The student edition has no check of it, because the check computes with "
        "the reference answer: it is checked when you hand the lesson in. Your answer is used below."
    )


@dataclass(frozen=True, kw_only=True)
class Exercise:
    """One task of a lesson.

    A student edition is a copy of the course without reference answers. Checks that need the
    reference are missing in it, too.

    id          words joined by dashes, unique in the course
    task        one sentence: what to write
    difficulty  1 (apply), 2 (combine) or 3 (think)
    minutes     working time of the typical reader
    hint        the idea, without the code
    reference   the right answer: a function or class with the name that the reader's has, a value,
                or a `Script`; None in a student edition
    verify      function (answer) that raises `Wrong` when the answer does not pass. For an open
                task it checks only the form of the answer
    imports     lines of code with the imports that the reference needs
    importance  1 (may be skipped), 2 (worth doing) or 3 (the heart of the lesson)
    judged_by   "" for a task with a right answer. For an open task: what the reader judges the
                answer by, such as "the ladder below"
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
        """Return the name of the variable, function or class that the reader has to write.

        If the reference is a function or class, this is its name; else it is the id with
        underscores in place of dashes.
        """
        return getattr(self.reference, "__name__", self.id.replace("-", "_"))

    @property
    def solution(self):
        """Return the reference answer as source code for a cell; None in a student edition."""
        if self.reference is None:
            return None
        if isinstance(self.reference, Script):
            return str(self.reference)
        if not callable(self.reference):
            return f"{self.name} = {self.reference!r}"
        source = inspect.getsource(self.reference).rstrip()
        return f"{self.imports}\n\n\n{source}" if self.imports else source

    def stand_in(self):
        """Return the reference answer, which later cells use until the reader's answer passes.

        Raises  LessonError in a student edition, which has no reference answers; it holds the hint
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
def non_contiguous_input(description: str, *tensors: Any) -> Iterator[None]:
    """Raise `Wrong` if the answer in the `with` block fails because a tensor is not contiguous.

    This replaces the RuntimeError that torch raises. If all tensors are contiguous, the
    RuntimeError has another cause and is raised unchanged.

    description  the input in words: the message begins with it
    tensors      the input
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

    quantity   what the number is, in words: the message begins with it
    tolerance  largest relative error: 1e-6 allows the rounding of float32
    absolute   largest absolute error, which matters for an expected value of 0. An answer passes if
               it is within one of the two limits
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
    """Wrap a function so that it raises `Wrong` if a call changes one of its arguments in place."""

    def call(*arguments, **named):
        before = copy.deepcopy((arguments, named))
        result = answer(*arguments, **named)
        if not _are_equal(before, (arguments, named)):
            raise Wrong(
                "Your function changes its input in place. The caller still needs "
                "that: make a new value."
            )
        return result

    return call


def _are_equal(before, after):
    """Return whether two nested values of tuples, lists, dicts, arrays and numbers are equal.

    NaN counts as equal to NaN in an array.
    """
    if isinstance(before, dict):
        return _are_equal(list(before.items()), list(after.items()))
    if isinstance(before, (tuple, list)):
        return len(before) == len(after) and all(map(_are_equal, before, after))
    if not hasattr(before, "shape"):
        return before == after
    if before.shape != after.shape:
        return False
    both_nan = (before != before) & (after != after)
    return bool(((before == after) | both_nan).all())


def readable(number: float) -> str:
    """Return a number as text, with six significant digits.

    A number from 10,000 to 10^12 is written in full, with separators: "1,234,567".
    """
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
    """Return the exercises of a lesson as a tuple; () if the lesson has no module of exercises.

    lesson  name of the lesson's notebook, such as "15_pruning_and_coding"
    """
    module = f"l{lesson}"
    return importlib.import_module(f"{__name__}.{module}").EXERCISES if module in modules() else ()


def modules():
    """Return the names of the modules of exercises, such as "l15_pruning_and_coding", in order."""
    names = sorted(module.name for module in pkgutil.iter_modules(__path__))
    return [name for name in names if re.match(r"l\d\d_", name)]


def find(exercise_id: str) -> Exercise:
    """Return the exercise with this id.

    Raises  LessonError if there are no exercises at all; LabError if no exercise has this id
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
    """Return the ids of the exercises whose `check` is called in the source of a cell."""
    return [
        exercise_id
        for name, exercise_id, checked in _EXERCISE_CALL.findall(source)
        if checked or (name and re.search(rf"\b{name}\.check\(", source))
    ]


def script_in(source):
    """Return the id of the exercise whose script a cell writes to a file; None for any other cell.

    source  source of the cell: "%%writefile FILE", then the line "# exercise: ID", then the script
    """
    script = _SCRIPT.match(source)
    return script[1] if script else None


def fill(source: str) -> str:
    """Replace the reader's stub in a notebook cell by the reference answer. Returns the new source.

    A cell without an exercise is returned unchanged.

    source  source of the cell. It holds a stub and a line that calls `exercise("ID").check(...)`,
            which stays; or it holds a script that the cell writes to a file
    """
    lines = source.splitlines()
    if script_in(source):
        return "\n".join([*lines[:2], _solution(script_in(source))])
    for exercise_id in ids_in(source):
        if isinstance(find(exercise_id).reference, Script):
            continue  # another cell writes the script to its file, and is filled there
        check = next(number for number, line in enumerate(lines) if ".check(" in line)
        named = [line for line in lines[:check] if _EXERCISE_CALL.search(line)]
        return "\n".join([_solution(exercise_id), "", *named, *lines[check:]])
    return source


def _solution(exercise_id):
    """Return the reference answer of an exercise as source code.

    Raises  LessonError in a student edition, which has no reference answers
    """
    solution = find(exercise_id).solution
    if solution is None:
        raise LessonError(
            "A student edition has no solutions to fill in.", fix="take the course with its answers"
        )
    return solution
