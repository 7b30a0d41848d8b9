"""Find the notebooks of the course on disk, read what they are, and check their parameters."""

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
    """One notebook, read but not run.

    name        file name without .ipynb
    measures    whether the notebook measures times, and so must run alone
    parameters  {name: default} of the cell tagged `parameters`; None for a default that is computed
    """

    name: str
    path: Path
    measures: bool
    parameters: dict[str, Any]


def find(names: Iterable[str] | None = None) -> list[Notebook]:
    """Return the named notebooks, or all of the course, as a list of `Notebook`.

    names   such as "01", "01_deployment_fundamentals", or a path, without repetitions; None: all
    Raises  LabError when one does not exist or cannot be read, when two have the same name, and
            when there is none
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
    """Return the `Notebook` in a file; LabError where the file is not a notebook."""
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
    """Return {name: default} of the parameters of a notebook.

    cells    of the notebook; the first with the tag `parameters` has lines `name = value`
    returns  {} where no cell has the tag; None for a default that is not a literal
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
    """Return the parameters converted to the types of a notebook's defaults: {name: value}.

    Raises  LabError for an unknown name or a value that does not fit
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
    """Return one value, converted to the type of the notebook's default.

    A default of None takes any value that JSON can hold.
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
    """Return a hex digest of these notebooks, their code and data, and labkit.

    A batch is continued only where its digest is unchanged. Claims, tables and templates count as
    code does, and so do the exercises of these notebooks. These do not count: caches of Python and
    editors, data sets that the reader has fetched (their files are checked where they are read),
    environment variables, and the machine.

    paths  of the notebooks
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
    """Yield the files below a folder in a fixed order, without caches and hidden files."""
    for path in sorted(package.rglob("*")):
        inside = path.relative_to(package)
        left_behind = path.suffix == ".pyc" or path.name.endswith("~")
        hidden = any(name.startswith(".") or name == "__pycache__" for name in inside.parts)
        if path.is_file() and not left_behind and not hidden:
            yield path


def course():
    """Return the hex digest of the whole course, labkit included.

    A worker of a cluster must have the same digest as its client.
    """
    return digest(notebooks())
