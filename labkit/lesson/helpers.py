"""Find the names of labkit that a notebook imports, with their source, for `start` to show.

The source files are read, not imported, so that no module is imported before the lesson needs it.
"""

import ast
import json
import os
import re
from pathlib import Path
from typing import NamedTuple

from labkit.files import root

PACKAGE = Path(__file__).parent.parent


class Helper(NamedTuple):
    """A name of labkit that a notebook imports, and the place of its source.

    summary  the first paragraph of its docstring
    file     path of the source file, such as "labkit/train/repeat.py"
    line     line in which the definition begins
    link     path of the source file relative to the notebook's folder; None where the file is not
             in the folder of the course
    """

    name: str
    summary: str
    file: str  # such as "labkit/train/repeat.py"
    line: int
    link: str | None = None


def helpers_of(notebook: str) -> list[Helper]:
    """Return a `Helper` for each name of labkit that a notebook imports, in the order of the cells.

    The list is empty if the notebook cannot be found or read.

    notebook  name of the notebook without .ipynb, as `start` gets it
    """
    path = _path_of(notebook)
    try:
        names = _imported(path) if path else []
    except (OSError, ValueError, KeyError, TypeError):  # not readable, or no notebook
        return []
    helpers = [_described(module, name, path.parent) for module, name in names]
    return [helper for helper in helpers if helper]


def _path_of(notebook):
    """Return the path of the notebook that is running; None if there is no such file.

    JupyterLab names the path in an environment variable. Without it, the lesson of this name in the
    folder of the course is taken.
    """
    session = Path(os.environ.get("JPY_SESSION_NAME", ""))
    for path in (session, root() / "notebooks" / f"{notebook}.ipynb"):
        if path.suffix == ".ipynb" and path.is_file():
            return path
    return None


def _imported(path):
    """Return the names that a notebook imports from labkit: [(module, name)], each once.

    path  of the notebook
    """
    names = []
    # read as JSON: nbformat takes two seconds to import, which every `start` would wait for
    for cell in json.loads(path.read_bytes())["cells"]:
        if cell["cell_type"] == "code":
            source = "".join(cell["source"])
            source = re.sub("^[%!].*", "", source, flags=re.MULTILINE)  # commands of IPython
            names += _imports_in(source)
    return list(dict.fromkeys(names))


def _imports_in(source):
    """Return the names that a cell imports from labkit: [(module, name)].

    The list is empty if the syntax of the cell is wrong.
    """
    try:
        module = ast.parse(source)
    except SyntaxError:  # a reader is still writing it
        return []
    names = []
    for node in ast.walk(module):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "labkit":
            names += [(node.module, alias.name) for alias in node.names]
    return names


def _described(module, name, folder):
    """Return the `Helper` of a name in a module; None if its source is not found.

    folder  folder of the notebook, from which the link leads
    """
    source = _source_of(module, name)
    if source is None:
        return None
    path, line, docstring = source
    summary = (docstring or "").strip().split("\n\n")[0]
    link = os.path.relpath(path, folder) if path.is_relative_to(root()) else None
    return Helper(
        name, " ".join(summary.split()), str(path.relative_to(PACKAGE.parent)), line, link
    )


def _source_of(module, name):
    """Find where a name of a module is defined. Returns (file, line, docstring), or None.

    The name may be defined in the module, imported there from another module, or be a submodule.

    module  name of a module of labkit, such as "labkit.train.repeat"
    """
    path = _file_of(module)
    if path is None:
        return None
    for statement in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(statement, (ast.FunctionDef, ast.ClassDef)) and statement.name == name:
            return path, statement.lineno, ast.get_docstring(statement)
        if isinstance(statement, ast.Assign) and name in map(ast.unparse, statement.targets):
            return path, statement.lineno, None
        if isinstance(statement, ast.ImportFrom):
            for alias in statement.names:
                if (alias.asname or alias.name) == name:
                    return _source_of(statement.module, alias.name)

    # No statement of the module makes the name.
    submodule = _file_of(f"{module}.{name}")
    if submodule is None:
        return None
    return submodule, 1, ast.get_docstring(ast.parse(submodule.read_text(encoding="utf-8")))


def _file_of(module):
    """Return the path of the source file of a module of labkit; None if there is no such module."""
    base = PACKAGE.parent.joinpath(*module.split("."))
    for path in (base.with_suffix(".py"), base / "__init__.py"):
        if path.is_file():
            return path
    return None
