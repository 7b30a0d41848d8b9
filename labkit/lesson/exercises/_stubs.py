"""Whether an answer is written yet: a function, a class with a stub among its methods, or a
script.
"""

import ast
import dis
import inspect
import textwrap
import types
from typing import Any

from labkit.lesson.exercises._script import Script

# The instructions of a function that does nothing but return a constant; which of them depends on
# the Python.
RETURNS_A_CONSTANT = {"RESUME", "NOP", "LOAD_CONST", "RETURN_VALUE", "RETURN_CONST"}


def is_stub(answer: Any) -> bool:
    """Say whether an answer is not written yet: `...`, None, a function that only returns None,
    a script with `...`.
    """
    if answer is None or answer is ...:
        return True
    if isinstance(answer, Script):
        return _has(answer, _dots)
    if not isinstance(answer, types.FunctionType):
        return False
    steps = {step.opname for step in dis.get_instructions(answer)}
    return steps <= RETURNS_A_CONSTANT and {None, answer.__doc__}.issuperset(
        answer.__code__.co_consts
    )


def unwritten(answer: Any) -> str | None:
    """The name of the function or method of an answer that is not written to its end; None where
    there is none.

    Either it does nothing, or a `...` stands where a statement belongs. A method that says `pass`
    is meant so.
    """
    if not (inspect.isfunction(answer) or inspect.isclass(answer)):
        return None
    functions = _functions_of(answer)
    for name, function in functions.items():
        source = _source(function)
        if _has(source, _dots) or (is_stub(function) and not _has(source, _pass)):
            return f"`{name}`"
    return None if functions else f"`{answer.__name__}`"


def _functions_of(answer):
    """{name: function without its decorators} of a function, or of a class's own methods."""
    if inspect.isfunction(answer):
        return {answer.__name__: inspect.unwrap(answer)}
    # of a static method
    plain = {name: getattr(method, "__func__", method) for name, method in vars(answer).items()}
    return {
        name: inspect.unwrap(method) for name, method in plain.items() if inspect.isfunction(method)
    }


def _source(function):
    try:
        return textwrap.dedent(inspect.getsource(function))
    except (OSError, TypeError):
        return ""


def _has(source, kind):
    """Whether a statement of the source is of this kind."""
    try:
        return any(map(kind, ast.walk(ast.parse(source))))
    except SyntaxError:
        return False


def _dots(node):
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and node.value.value is ...
    )


def _pass(node):
    return isinstance(node, ast.Pass)
