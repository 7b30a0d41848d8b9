"""The notebooks of the course as they lie on disk: which there are, what they are, which parameters they take."""

import ast
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from labkit.errors import LabError
from labkit.files import notebooks, sha256, short_digest


class Notebook(NamedTuple):
    """One notebook, read but not run.

    name        file name without .ipynb
    measures    whether it must run alone, because it takes times
    parameters  {name: default} of the cell tagged `parameters`; None for a default that is computed
    """

    name: str
    path: Path
    measures: bool
    parameters: dict[str, Any]


def find(names: Iterable[str] | None = None) -> list[Notebook]:
    """The named notebooks, or all, as `Notebook`s in the order of the course.

    names  such as "01", "01_deployment_fundamentals", or a path; LabError when one does not exist or cannot be read
    """
    paths = notebooks() if names is None else list(dict.fromkeys(_locate(str(name)) for name in names))
    stems = [path.stem for path in paths]
    if not paths or len(set(stems)) < len(stems):
        raise LabError(
            "Two notebooks have the same name." if paths else "There is no notebook to run.",
            expected="notebooks such as 00_start_here",
            found=", ".join(stems),
        )
    return [_read(path) for path in paths]


def _locate(name):
    """The path of one notebook: a file that is there, or a lesson by number or name."""
    if name.endswith(".ipynb") and Path(name).is_file():
        return Path(name).resolve()
    every = notebooks()
    fitting = [path for path in every if name in (path.stem, path.name, path.name[:2])]
    if len(fitting) == 1:
        return fitting[0]
    raise LabError(
        f"No single notebook is called {name!r}.",
        expected=", ".join(path.stem for path in fitting or every),
        fix="labkit list",
    )


def _read(path):
    try:
        page = json.loads(path.read_bytes())
        tagged = ["".join(cell["source"]) for cell in page["cells"] if "parameters" in cell["metadata"].get("tags", [])]
        return Notebook(
            path.stem,
            path,
            bool(page["metadata"].get("labkit", {}).get("measures")),
            _defaults("\n".join(tagged[:1])),
        )
    except (ValueError, KeyError, TypeError, AttributeError, SyntaxError) as error:
        raise LabError(
            f"{path.name} is not a notebook.",
            expected="a file that JupyterLab wrote",
            found=f"{type(error).__name__}: {error}",
            fix="put the file back as it was, or leave it out",
        ) from error


def _defaults(text):
    """{name: default} of the lines `name = value` of the cell tagged `parameters`."""
    found = {}
    for line in ast.parse(text).body:
        if isinstance(line, ast.Assign) and isinstance(line.targets[0], ast.Name):
            try:
                found[line.targets[0].id] = ast.literal_eval(line.value)
            except ValueError:
                found[line.targets[0].id] = None
    return found


def typed(notebook, parameters):
    """The parameters as this notebook's types; LabError for an unknown name or a value that does not fit."""
    for name in parameters:
        if name not in notebook.parameters:
            raise LabError(
                f"The notebook {notebook.name} has no parameter {name!r}.",
                expected=", ".join(notebook.parameters) or "nothing: it has no cell tagged `parameters`",
                fix="leave it out, or name the notebooks that have it",
            )
    return {name: _converted(notebook, name, value) for name, value in parameters.items()}


def _converted(notebook, name, value):
    """One value as the type of the notebook's default; a default of None takes any."""
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
    """Hex digest of these notebooks and of the source of labkit: a resumed batch shares it with its first start."""
    package = Path(__file__).resolve().parent.parent
    lines = [f"{sha256(path)}  {path.name}\n" for path in (*paths, *sorted(package.rglob("*.py")))]
    return short_digest("".join(lines))


def course():
    """Hex digest of the whole course, labkit included: what a worker of a cluster must share with its client."""
    return digest(notebooks())
