"""Decide whether the reader has written an answer: a function, a class, a value or a script."""

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

    These count as not written: `...`, None, a function that does nothing but return None, and a
    script that holds `...` as a statement.
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
    """Find a function of an answer that is not written to its end. Returns its name, or None.

    A function counts as not written if it does nothing, or holds `...` as a statement. A method
    that says `pass` counts as written. A class without any method counts as not written.

    answer   the reader's function or class; for any other answer None is returned
    returns  name of the first such function or method, or of the class, in backticks; None if all
             is written
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
    """Return the functions of an answer without their decorators: {name: function}.

    answer  a function, which is then the only one, or a class, whose own methods are taken
    """
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
    """Return whether Python source has a syntax node of some kind; False if it cannot be parsed.

    is_kind  function (node) -> bool
    """
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
