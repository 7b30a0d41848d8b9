"""Exercises: one module per lesson, with the reference answers and the checks.

A lesson's module holds `EXERCISES`, a tuple of `Exercise`; the teaching words and the tests find it by themselves.
Wrong answers that a check must reject, and right ones written differently, stand in `tests/lesson/answers/`.
"""

import contextlib
import copy
import dis
import functools
import importlib
import inspect
import pkgutil
import re
import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from labkit.errors import LessonError, require_known

# The instructions of a function that does nothing but return a constant; which of them depends on the Python.
RETURNS_A_CONSTANT = {"RESUME", "NOP", "LOAD_CONST", "RETURN_VALUE", "RETURN_CONST"}


class Wrong(Exception):
    """An answer does not pass; the message tells the reader what was seen and where to look."""


@dataclass(frozen=True, kw_only=True)
class Exercise:
    """One task of a lesson.

    id          words joined by dashes, unique in the course
    task        one sentence: what to write
    difficulty  1 (apply), 2 (combine) or 3 (think)
    minutes     what it takes the typical reader
    hint        the idea, without the code
    reference   the answer: a function of the same name as the reader's, or a plain value
    verify      called with an answer; raises `Wrong` when it does not pass
    imports     lines that the reference needs above it
    """

    id: str
    task: str
    difficulty: int
    minutes: int
    hint: str
    reference: Any
    verify: Callable[[Any], None]
    imports: str = ""

    @property
    def name(self):
        """The reader's variable: the id with underscores."""
        return self.id.replace("-", "_")

    @property
    def solution(self):
        """The reference as source code that can stand in the reader's cell; None in a student edition."""
        above = f"{self.imports}\n\n\n" if self.imports else ""
        with contextlib.suppress(OSError):  # it has no source
            inspect.getsource(self.verify)  # a plain value could be shown without any
            if not callable(self.reference):
                return f"{self.name} = {self.reference!r}"
            return above + inspect.getsource(self.reference).rstrip()
        return None


def expect(condition, message):
    """Raise `Wrong(message)` unless the condition holds."""
    if not condition:
        raise Wrong(message)


@contextlib.contextmanager
def in_pieces(what, *tensors):
    """For an answer to torch tensors: where it raises because one is not in one piece, `Wrong` says what that was."""
    try:
        yield
    except RuntimeError as error:
        if all(each.is_contiguous() for each in tensors):
            raise
        raise Wrong(f"{what}, so that its numbers are not in one piece: {error}") from None


def expect_close(found, wanted, what, *, tolerance=1e-6):
    """Raise `Wrong` unless `found` is a number within a relative `tolerance` of `wanted`."""
    try:
        number = float(found)
    except (TypeError, ValueError):
        number = None
    if number is None or isinstance(found, (str, bytes)):
        raise Wrong(f"{what}: expected a number, found {shorten(found)}.")
    near = abs(number - wanted) <= tolerance * max(abs(wanted), 1e-12)
    expect(near, f"{what}: expected {readable(wanted)}, found {readable(number)}.")


def untouched(answer):
    """The answer as a function that raises `Wrong` when a call changes what it was given."""

    def call(*arguments, **named):
        before = copy.deepcopy((arguments, named))
        found = answer(*arguments, **named)
        if not _same(before, (arguments, named)):
            raise Wrong("Your function changes its input in place. The caller still needs that: make a new value.")
        return found

    return call


def _same(before, after):
    """True for two equal nested values of tuples, lists, dicts, arrays and numbers."""
    if isinstance(before, dict):
        return _same(list(before.items()), list(after.items()))
    if isinstance(before, (tuple, list)):
        return len(before) == len(after) and all(map(_same, before, after))
    return bool((before == after).all()) if hasattr(before, "shape") else before == after


def readable(number):
    """A large number in full with separators, others with six digits."""
    return f"{number:,.0f}" if 1e4 <= abs(number) < 1e12 else f"{number:.6g}"


def shorten(value):
    """A value as text of at most 80 characters."""
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


@functools.cache
def registry():
    """{exercise id: Exercise} of all lessons."""
    return {task.id: task for lesson in lessons().values() for task in of(lesson)}


def of(lesson):
    """The exercises of a lesson's module, such as "l14_pruning_and_coding"."""
    return importlib.import_module(f"labkit.lesson.exercises.{lesson}").EXERCISES


def lessons():
    """{number of a lesson, such as "14": the name of its module}, in order."""
    names = sorted(module.name for module in pkgutil.iter_modules(__path__))
    return {name[1:3]: name for name in names if re.match(r"l\d\d_", name)}


def find(exercise_id):
    """The exercise of that id."""
    require_known(exercise_id, registry(), "exercise")
    return registry()[exercise_id]


def asked(source):
    """The ids of the exercises that a cell has checked."""
    return re.findall(r"""\bexercise\(["']([\w-]+)["']\)\.check\(""", source)


def is_stub(answer):
    """True for an answer that is not written yet: `...`, None, or a function that only returns None."""
    if answer is None or answer is ...:
        return True
    if not isinstance(answer, types.FunctionType):
        return False
    steps = {step.opname for step in dis.get_instructions(answer)}
    return steps <= RETURNS_A_CONSTANT and {None, answer.__doc__}.issuperset(answer.__code__.co_consts)


def fill(source):
    """A notebook cell with the reader's stub replaced by the reference answer.

    source   the cell: a stub, then the line that calls `exercise("<id>").check(...)`
    returns  the reference, then that line; other cells come back unchanged
    """
    lines = source.splitlines()
    for number, line in enumerate(lines):
        for exercise_id in asked(line):
            solution = find(exercise_id).solution
            if solution is None:
                raise LessonError("A student edition has no solutions to fill in.", fix="take the instructor's edition")
            return "\n".join([solution, "", *lines[number:]])
    return source
