"""Find the notebooks of the course on disk, read what a batch has to know, and check parameters."""

import ast
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from labkit.errors import LabError
from labkit.files import deeper_notebooks, notebooks, root, sha256, short_digest
from labkit.notebook import read_notebook

_PACKAGE = Path(__file__).resolve().parent.parent


class Notebook(NamedTuple):
    """What a batch has to know of a notebook before it runs.

    name        name of the file, without .ipynb
    path        path of the file
    measures    True: the notebook measures times, and so must run alone
    parameters  {name: default} of the cell tagged `parameters`; the default is None where it is
                computed
    """

    name: str
    path: Path
    measures: bool
    parameters: dict[str, Any]


def find(names: Iterable[str] | None = None) -> list[Notebook]:
    """Return the notebooks that are named, or all of the course, as a list of `Notebook`.

    names   such as "01", "01_deployment_fundamentals" or a path; one that is named twice counts
            once. None: all of the course
    Raises  LabError where a notebook does not exist or cannot be read, where two different
            notebooks have the same name, and where the list is empty
    """
    if names is None:
        paths = notebooks()
    else:
        paths = list(dict.fromkeys(_locate(str(name)) for name in names))
    stems = [path.stem for path in paths]
    if not paths or len(set(stems)) < len(stems):
        raise LabError(
            "Two notebooks have the same name." if paths else "There is no notebook to run.",
            expected="notebooks with different names" if paths else "one such as 00_start_here",
            found=", ".join(stems),
        )
    return [_read(path) for path in paths]


def _locate(name):
    """Return the path of the notebook that a name stands for.

    The name is a path, a lesson's number or name, or the name of a notebook in notebooks/deeper.

    Raises  LabError where no notebook, or more than one, has this name
    """
    if name.endswith(".ipynb") and Path(name).is_file():
        return Path(name).resolve()
    every = notebooks()
    fitting = [path for path in every if name in (path.stem, path.name, path.name[:2])]
    fitting += [path for path in deeper_notebooks() if name in (path.stem, path.name)]
    if len(fitting) == 1:
        return fitting[0]
    raise LabError(
        f"No single notebook is called {name!r}.",
        expected=", ".join(path.stem for path in fitting or every),
        fix="labkit list",
    )


def _read(path):
    """Return the `Notebook` in a file.

    Raises  LabError where the file is not a notebook
    """
    notebook = read_notebook(path)
    try:
        return Notebook(
            path.stem,
            path,
            bool(notebook.metadata.get("labkit", {}).get("measures")),
            defaults_of(notebook.cells),
        )
    except (ValueError, KeyError, TypeError, AttributeError, SyntaxError) as error:
        raise LabError(
            f"{path.name} is not a notebook.",
            expected="a file that JupyterLab wrote",
            found=f"{type(error).__name__}: {error}",
            fix="put the file back as it was, or leave it out",
        ) from error


def defaults_of(cells):
    """Return {name: default} of the parameters of a notebook; {} where it has none.

    They are the lines `name = value` of the first cell with the tag `parameters`. A value that is
    computed, rather than written as a literal, gives None.

    cells  cells of the notebook
    """
    tagged = [cell.source for cell in cells if "parameters" in cell.metadata.get("tags", [])]
    defaults = {}
    for line in ast.parse("\n".join(tagged[:1])).body:
        if isinstance(line, ast.Assign) and isinstance(line.targets[0], ast.Name):
            try:
                defaults[line.targets[0].id] = ast.literal_eval(line.value)
            except ValueError:
                defaults[line.targets[0].id] = None
    return defaults


def typed(notebook, parameters):
    """Return parameters converted to the types of a notebook's defaults: {name: value}.

    For example "3" becomes 3 where the default is a whole number.

    notebook    a `Notebook`
    parameters  {name: value}
    Raises      LabError for an unknown name or a value that does not fit
    """
    if parameters and not notebook.parameters:
        raise LabError(
            f"{notebook.path.name} has no cell with the tag `parameters`: an editor may have "
            "dropped it.",
            expected="the tag on the cell that sets profile and seed",
            found="no parameters, so that none can be set",
            fix="add the tag (in JupyterLab: the gear at the upper right); of a lesson, `labkit "
            "reset` with its number "
            "gives a fresh copy and keeps yours in old/",
        )
    for name in parameters:
        if name not in notebook.parameters:
            raise LabError(
                f"The notebook {notebook.name} has no parameter {name!r}.",
                expected=", ".join(notebook.parameters),
                fix="leave it out, or name the notebooks that have it",
            )
    return {name: _converted(notebook, name, value) for name, value in parameters.items()}


def _converted(notebook, name, value):
    """Return the value of one parameter, converted to the type of the notebook's default.

    A default of None takes any value that JSON can hold.

    Raises  LabError where the value does not fit
    """
    default = notebook.parameters[name]
    try:
        if type(default) in (int, float) and type(value) in (int, str):
            value = type(default)(value)
        if default is None or type(value) is type(default):
            json.dumps(value, allow_nan=False)
            return value
    except (ValueError, TypeError):
        pass
    raise LabError(
        f"The parameter {name!r} of {notebook.name} does not fit.",
        expected=f"a value like {default!r}",
        found=f"{value!r} ({type(value).__name__})",
        fix=f"-p {name}={default}",
    )


def digest(paths):
    """Return a digest, in hex digits, of all files that decide what some notebooks do.

    A batch is continued only where its digest is unchanged. The files are the notebooks, the
    modules of their exercises, labkit with its tables and templates, and the data that comes with
    the course. Other files do not count, such as caches, and data sets that the reader has
    downloaded: these are checked when they are read. Environment variables and the machine do not
    count either.

    paths  paths of the notebooks
    """
    lines = []
    for path in paths:
        exercises = root() / "notebooks" / "exercises" / f"l{path.stem}.py"
        for file in (path, exercises):
            if file.is_file():
                lines.append(f"{sha256(file)}  {file.name}\n")
    own_data = [root() / "data" / name for name in ("fashion-mnist", "trained")]
    for folder in (_PACKAGE, root() / "notebooks" / "support", *own_data):
        for path in _source_files(folder):
            lines.append(f"{sha256(path)}  {folder.name}/{path.relative_to(folder).as_posix()}\n")
    return short_digest("".join(lines))


def _source_files(package):
    """Yield the paths of all files below a folder, without caches and hidden files, sorted."""
    for path in sorted(package.rglob("*")):
        inside = path.relative_to(package)
        left_behind = path.suffix == ".pyc" or path.name.endswith("~")
        hidden = any(name.startswith(".") or name == "__pycache__" for name in inside.parts)
        if path.is_file() and not left_behind and not hidden:
            yield path


def course():
    """Return the digest, in hex digits, of all lessons and labkit.

    A worker of a cluster must have the same digest as the machine that sends tasks to it.
    """
    return digest(notebooks())
