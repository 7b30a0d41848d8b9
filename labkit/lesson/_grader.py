"""The process that grades what a student wrote, from its source alone. Called as `python -m labkit.lesson._grader`.

It reads [[exercise id, imports of the notebook, source of the cell], ...] as JSON and writes {id: [verdict, message]}.
No other cell of the notebook has run here, so nothing that one of them changed is here. The answer itself may compute
with the libraries of the course; it may not reach for the checker: that is looked for in its source, and what it
changed in the libraries is looked for afterwards.
"""

import ast
import json
import linecache
import os
import sys
import types
from contextlib import redirect_stdout, suppress
from pathlib import Path

from labkit.lesson import exercises
from labkit.lesson._exercise import judged

# fmt: off
LIBRARIES = {
    "torch", "numpy", "math", "statistics", "itertools", "functools", "collections", "heapq", "bisect", "operator",
    "random", "fractions", "decimal", "dataclasses", "typing", "time", "copy", "re", "string", "struct", "contextlib",
    "scipy", "pandas", "onnx", "onnxruntime", "triton", "pycuda", "tensorrt", "tensorrt_rtx", "matplotlib", "json",
    "tempfile", "pathlib", "warnings", "lzma", "labkit",
}
KEPT_OUT = ("labkit.lesson", "labkit.runner", "labkit.report", "labkit.cli", "labkit.ledger")
BUILTINS = {
    "__import__", "eval", "exec", "compile", "globals", "locals", "vars", "setattr", "delattr", "open", "input",
    "breakpoint", "exit", "quit", "get_ipython",
}
METHODS = {
    "__init__", "__call__", "__len__", "__iter__", "__next__", "__getitem__", "__enter__", "__exit__", "__repr__",
    "__post_init__",
}
INSIDE = {
    "f_back", "f_globals", "f_locals", "gi_frame", "cr_frame", "tb_frame", "modules", "meta_path", "settrace",
    "setprofile", "sys", "os", "gc", "inspect", "builtins", "importlib", "ctypes", "subprocess", "threading",
    "reference", "verify", "lesson",
}
# fmt: on


class Reaches(Exception):
    """The source reaches for what grades it."""


def main():
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    cells = json.loads(sys.stdin.read())
    found = {exercise_id: grade(exercise_id, imports, source) for exercise_id, imports, source in cells}
    print(json.dumps(found), file=out, flush=True)


def grade(exercise_id, imports, source):
    """("passed" | "wrong" | "unsolved", message) of the source of one exercise cell.

    imports  lines of import of the cells before it; those that are not of the course's libraries are left out
    """
    task = exercises.find(exercise_id)
    verify, name = task.verify, task.name
    try:
        tree = _answer_of(source)
        _require_plain(tree)
    except (Reaches, SyntaxError, ValueError, RecursionError) as error:
        return "wrong", f"{type(error).__name__}: {error}" if not isinstance(error, Reaches) else str(error)
    before = _callables()
    space = _imported(imports)
    place = f"<cell of {exercise_id}>"
    linecache.cache[place] = (len(source), None, source.splitlines(keepends=True), place)
    with Path(os.devnull).open("w", encoding="utf-8") as nowhere, redirect_stdout(nowhere):
        verdict, message = judged(verify, lambda: _run(tree, place, space, name))
    if changed := [name for name, kept in _callables().items() if _is_other(name, before, kept)]:
        return "wrong", f"The answer changes a library: {', '.join(sorted(changed)[:3])}."
    if "NameError" in message:
        message += " (graded alone: the cell must hold all it needs but the notebook's imports)"
    return verdict, message


def _is_other(name, before, now):
    """Whether a library's function is another one than before; torch itself wraps `manual_seed` when it compiles."""
    return before.get(name, now) is not now and not name.endswith(".manual_seed")


def _run(tree, place, space, name):
    """The answer that the cell leaves under the exercise's name; None when there is none."""
    exec(compile(tree, place, "exec"), space)
    return space.get(name)


def _answer_of(source):
    """The cell as a tree, up to the line that has it checked."""
    tree = ast.parse("\n".join("pass" if line.startswith(("%", "!")) else line for line in source.splitlines()))
    for place, statement in enumerate(tree.body):
        if not isinstance(statement, (ast.FunctionDef, ast.ClassDef)) and _calls_exercise(statement):
            tree.body = tree.body[:place]
            break
    return tree


def _calls_exercise(statement):
    calls = [node for node in ast.walk(statement) if isinstance(node, ast.Call)]
    return any(isinstance(call.func, ast.Name) and call.func.id == "exercise" for call in calls)


def _require_plain(tree):
    """Raise Reaches where the source goes beyond computing."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            for module in _modules(node):
                _refuse(not _is_library(module), f"imports {module}")
        elif isinstance(node, ast.Name):
            dunder = node.id.startswith("__") and node.id != "__name__"
            _refuse(node.id in BUILTINS or dunder, f"uses {node.id}")
        elif isinstance(node, ast.Attribute):
            dunder = node.attr.startswith("__") and node.attr not in METHODS
            _refuse(node.attr in INSIDE or dunder, f"uses .{node.attr}")
        elif isinstance(node, ast.FunctionDef):
            dunder = node.name.startswith("__") and node.name not in METHODS
            _refuse(dunder, f"defines {node.name}")
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("getattr", "hasattr"):
            plain = len(node.args) > 1 and isinstance(node.args[1], ast.Constant) and node.args[1].value not in INSIDE
            _refuse(not plain or str(node.args[1].value).startswith("__"), "uses getattr with a name that is computed")
        elif isinstance(node, ast.Assign):
            _refuse(any(_dunder(target) for target in node.targets), "defines a name with two underscores")


def _dunder(target):
    return isinstance(target, ast.Name) and target.id.startswith("__")


def _refuse(condition, what):
    if condition:
        raise Reaches(f"The answer {what}: an exercise needs only computing, with the libraries of the course.")


def _modules(node):
    """The modules that an import names."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    return [node.module or "."] + [f"{node.module}.{alias.name}" for alias in node.names]


def _is_library(module):
    return module.split(".")[0] in LIBRARIES and not any(f"{module}.".startswith(f"{kept}.") for kept in KEPT_OUT)


def _imported(lines):
    """A namespace with the notebook's imports of the course's libraries, as far as they are here."""
    space = {"__name__": "__main__"}
    for line in lines:
        tree = ast.parse(line)
        if all(_is_library(module) for node in tree.body for module in _modules(node)):
            with suppress(Exception):
                exec(compile(tree, "<imports>", "exec"), space)
    return space


def _callables():
    """{where: function or class} of the loaded libraries, and of the classes that checks compare with."""
    found, kinds = {}, (types.FunctionType, types.BuiltinFunctionType, type)
    watched = {*LIBRARIES, "builtins"}
    places = {name: module for name, module in list(sys.modules.items()) if name.split(".")[0] in watched}
    if "torch" in sys.modules:
        torch = sys.modules["torch"]
        places |= {"torch.Tensor": torch.Tensor, "torch.nn.Module": torch.nn.Module}
    for name, place in places.items():
        found |= {f"{name}.{key}": value for key, value in list(vars(place).items()) if issubclass(type(value), kinds)}
    return found


if __name__ == "__main__":
    main()
