"""List which names of labkit a notebook imports, and where their source lies, for `start` to show.

Names are looked up in the source, so that nothing is imported before the lesson imports it.
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
    """One name of labkit that a notebook imports, and where its source lies.

    summary  the first paragraph of its docstring
    link     to the file, relative to the notebook's folder; None where the file is not in the
             course
    """

    name: str
    summary: str
    file: str  # such as "labkit/train/repeat.py"
    line: int
    link: str | None = None


def helpers_of(notebook: str) -> list[Helper]:
    """Return a `Helper` for each name of labkit that a notebook imports, in order of the cells.

    notebook  the lesson's name without .ipynb, as `start` is given it
    returns   [] where the notebook cannot be found or read
    """
    path = _path_of(notebook)
    try:
        names = _imported(path) if path else []
    except (OSError, ValueError, KeyError, TypeError):  # not readable, or no notebook
        return []
    helpers = [_described(module, name, path.parent) for module, name in names]
    return [helper for helper in helpers if helper]


def _path_of(notebook):
    """Return the path of the notebook that runs; None where there is no file.

    It is the one that JupyterLab names, else the lesson of the course.
    """
    session = Path(os.environ.get("JPY_SESSION_NAME", ""))
    for path in (session, root() / "notebooks" / f"{notebook}.ipynb"):
        if path.suffix == ".ipynb" and path.is_file():
            return path
    return None


def _imported(path):
    """Return [(module, name)] of all `from labkit... import ...` in a notebook, each once."""
    names = []
    # read as JSON: nbformat takes two seconds to import, which every `start` would wait for
    for cell in json.loads(path.read_bytes())["cells"]:
        if cell["cell_type"] == "code":
            source = "".join(cell["source"])
            source = re.sub("^[%!].*", "", source, flags=re.MULTILINE)  # commands of IPython
            names += _imports_in(source)
    return list(dict.fromkeys(names))


def _imports_in(source):
    """Return [(module, name)] that a cell imports from labkit; [] if its syntax is wrong."""
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
    """Return the `Helper` of a name of a module; None where its source is not found.

    folder  the folder of the notebook, from which the link starts
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
    """Return (file, line, docstring) of a name of a module; None where the name is not found.

    The name may be defined in the module, imported there from another one, or be a submodule.
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
    """Return the source file of a module of labkit, or None."""
    base = PACKAGE.parent.joinpath(*module.split("."))
    for path in (base.with_suffix(".py"), base / "__init__.py"):
        if path.is_file():
            return path
    return None
