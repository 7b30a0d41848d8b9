"""Tell whether the reader has written an answer: a function, a class, a value or a script."""

import ast
import dis
import inspect
import textwrap
import types
from typing import Any

from labkit.lesson.exercises._script import Script

# The bytecode instructions of a function that does nothing but return a constant. Python versions
# use different ones of these.
RETURNS_A_CONSTANT = {"RESUME", "NOP", "LOAD_CONST", "RETURN_VALUE", "RETURN_CONST"}


def is_stub(answer: Any) -> bool:
    """Return whether an answer is not written yet.

    That is `...`, None, a function whose body does nothing but return None, or a script in which
    `...` stands as a statement.
    """
    if answer is None or answer is ...:
        return True
    if isinstance(answer, Script):
        return _has_node(answer, _is_ellipsis)
    if not isinstance(answer, types.FunctionType):
        return False
    steps = {step.opname for step in dis.get_instructions(answer)}
    return steps <= RETURNS_A_CONSTANT and {None, answer.__doc__}.issuperset(
        answer.__code__.co_consts
    )


def unwritten(answer: Any) -> str | None:
    """Return the name, in backticks, of a function or method that is not written to its end.

    answer   the reader's function or class; None is returned for any other answer
    returns  the first function or method that does nothing, or in which `...` stands as a
             statement; a method that says `pass` is taken as intended. The class where it has no
             methods. None where all is written
    """
    if not (inspect.isfunction(answer) or inspect.isclass(answer)):
        return None
    functions = _functions_of(answer)
    for name, function in functions.items():
        source = _source(function)
        if _has_node(source, _is_ellipsis) or (
            is_stub(function) and not _has_node(source, _is_pass)
        ):
            return f"`{name}`"
    return None if functions else f"`{answer.__name__}`"


def _functions_of(answer):
    """Return {name: function without its decorators} of a function, or of a class's own methods."""
    if inspect.isfunction(answer):
        return {answer.__name__: inspect.unwrap(answer)}
    # a static or class method has its function in __func__
    plain = {name: getattr(method, "__func__", method) for name, method in vars(answer).items()}
    return {
        name: inspect.unwrap(method) for name, method in plain.items() if inspect.isfunction(method)
    }


def _source(function):
    try:
        return textwrap.dedent(inspect.getsource(function))
    except (OSError, TypeError):
        return ""


def _has_node(source, is_kind):
    """Return whether the source has a syntax node for which the function `is_kind` is true."""
    try:
        return any(map(is_kind, ast.walk(ast.parse(source))))
    except SyntaxError:
        return False


def _is_ellipsis(node):
    """Return whether a node is the statement `...`."""
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and node.value.value is ...
    )


def _is_pass(node):
    return isinstance(node, ast.Pass)
