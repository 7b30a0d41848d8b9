"""The student edition: the course as a folder without answers.

Each lesson has a module of exercises. From this module are removed: the reference answers, the
checks that compute with them, and all definitions that nothing else uses. In the student edition, a
cell with an unsolved exercise ends with the hint. An exercise whose check was removed is checked
only when the notebook is handed in. docs/teaching.md describes the edition for instructors.
"""

import ast
import re
import shutil
import subprocess
from pathlib import Path

from labkit.device import commit
from labkit.errors import LabError
from labkit.files import atomic_folder, root, write_text

# tests hold answers, benchmarks use the tests
LEFT_OUT = ("tests/", "benchmarks/", ".ci/", ".github/")
NOTE = """
> **Student edition**, made of commit {}: the course without answers. A lesson stops at an exercise that you have not
> solved, and shows its hint. Tests and benchmarks are not in it, so `make test` has nothing to run.
"""


def release(folder: Path) -> Path:
    """Write the student edition into a new folder, and return the path of the folder.

    Only files that git tracks are written, without those of `LEFT_OUT`.

    Raises  LabError where the folder exists, or where the course is no checkout of git
    """
    listing = subprocess.run(
        ["git", "-C", root(), "ls-files", "-z"], capture_output=True, text=True
    )
    if folder.exists():
        raise _cannot_write(f"{folder} is there already", "name another folder")
    if listing.returncode:
        raise _cannot_write(
            listing.stderr.strip(), "clone the course's repository, and call it there"
        )
    with atomic_folder(folder) as edition:
        for name in listing.stdout.split("\0")[:-1]:
            if not name.startswith(LEFT_OUT) and (root() / name).is_file():
                _write(name, edition / name)
    return folder


def _cannot_write(found, fix):
    """Return the `LabError` for a student edition that cannot be written.

    found  what stands in the way
    fix    what to do about it
    """
    return LabError(
        "The student edition cannot be written.",
        expected="a new folder, and the course as a checkout of git",
        found=found,
        fix=fix,
    )


def _write(name, target):
    """Write one file of the student edition, without answers if it is a module of exercises.

    name    path of the file in the course
    target  path of the file to write
    """
    source = root() / name
    if re.search(r"notebooks/exercises/l\d\d_\w+\.py$", name):
        write_text(target, without_answers(source.read_text(encoding="utf-8")))
    elif name == "README.md":
        title, text = source.read_text(encoding="utf-8").split("\n", 1)
        write_text(target, f"{title}\n{NOTE.format(commit())}{text}")
    else:
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, target)


def without_answers(source: str) -> str:
    """Return the source of a module of exercises without its reference answers.

    Each `Exercise(...)` loses its arguments `reference` and `imports`. It also loses `verify`, its
    check, if the check uses a reference answer. A function, class or variable of the module stays
    only if a remaining check uses it. Otherwise it is removed together with the comment above it.
    """
    module = ast.parse(source)
    definitions = _definitions(module)
    answers = set()
    for call in _exercise_calls(module):
        answers |= _names_in(_argument(call, "reference").value) & definitions.keys()

    # Arguments that are removed, and the definitions that the remaining checks need.
    dropped_arguments = []
    needed = set()
    for call in _exercise_calls(module):
        dropped_arguments += [
            keyword for keyword in call.keywords if keyword.arg in ("reference", "imports")
        ]
        check = _argument(call, "verify")
        needed_by_check = _needed_by(check.value, definitions)
        if needed_by_check & answers:
            dropped_arguments.append(check)
        else:
            needed |= needed_by_check

    dropped_lines = set()
    for keyword in dropped_arguments:
        dropped_lines |= set(range(keyword.lineno, keyword.end_lineno + 1))
    for name, definition in definitions.items():
        if name not in needed and name != "EXERCISES":
            dropped_lines |= _lines_of(definition, source.splitlines())
    lines = [
        line
        for number, line in enumerate(source.splitlines(), start=1)
        if number not in dropped_lines
    ]
    return re.sub(r"\n{4,}", "\n\n\n", "\n".join(lines)) + "\n"


def _definitions(module):
    """Return {name: statement} of the functions, classes and variables at a module's top level."""
    definitions = {}
    for statement in module.body:
        if isinstance(statement, ast.FunctionDef | ast.ClassDef):
            definitions[statement.name] = statement
        elif isinstance(statement, ast.Assign):
            for target in statement.targets:
                definitions.update(dict.fromkeys(_names_in(target), statement))
    return definitions


def _exercise_calls(module):
    """Return all calls `Exercise(...)` of a module."""
    return [
        node
        for node in ast.walk(module)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "Exercise"
    ]


def _argument(call, name):
    """Return the keyword argument `name` of a call.

    Raises  LabError where the call has no such argument
    """
    for keyword in call.keywords:
        if keyword.arg == name:
            return keyword
    raise LabError(
        "An exercise lacks an argument.", expected=name, found=ast.unparse(call), fix="give it"
    )


def _names_in(node):
    """Return the names of all variables in a syntax tree."""
    return {name.id for name in ast.walk(node) if isinstance(name, ast.Name)}


def _needed_by(node, definitions):
    """Return the names of the definitions that a syntax tree uses.

    A definition may be used directly or through other definitions.

    definitions  {name: statement}, as `_definitions` returns it
    """
    needed = set()
    waiting = _names_in(node) & definitions.keys()
    while waiting:
        name = waiting.pop()
        needed.add(name)
        waiting |= (_names_in(definitions[name]) & definitions.keys()) - needed
    return needed


def _lines_of(definition, lines):
    """Return the set of line numbers of a definition, with its decorators and the comment above it.

    definition  the statement, a node of `ast`
    lines       all lines of the source
    """
    decorators = getattr(definition, "decorator_list", [])
    first = min([definition.lineno, *(decorator.lineno for decorator in decorators)])
    while first > 1 and lines[first - 2].startswith("#"):
        first -= 1
    return set(range(first, definition.end_lineno + 1))
