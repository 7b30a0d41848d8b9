"""The notebooks of the workbook as they lie on disk: which there are, what they are, which parameters they take."""

import ast
import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from labkit.errors import LabError
from labkit.files import root, sha256

UNKNOWN = object()  # the default of a parameter that is computed: any value fits
WORDS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


@dataclass(frozen=True)
class Source:
    """One notebook, read but not run.

    name        file name without .ipynb
    problem     why it cannot be run at all, or None
    measures    whether it must run alone, because it takes times
    parameters  {name: default} of the cell tagged `parameters`
    """

    name: str
    path: Path
    problem: str | None
    measures: bool
    parameters: dict[str, Any]


def find(names=None, *, folder=None):
    """The named notebooks, or all, as `Source`s in the order of the course.

    names  such as "01", "01_deployment_fundamentals", or a path; LabError when one does not exist
    """
    folder = Path(folder or root() / "notebooks")
    every = sorted(folder.glob("[0-9][0-9]_*.ipynb"))
    paths = every if names is None else list(dict.fromkeys(locate(str(name), every) for name in names))
    stems = [path.stem for path in paths]
    if not paths or len(set(stems)) < len(stems):
        raise LabError(
            "There is no notebook to run." if not paths else "Two notebooks have the same name.",
            expected=f"notebooks such as {folder / '00_start_here.ipynb'}, each name once",
            found=", ".join(stems) or "none",
        )
    return [read(path) for path in paths]


def locate(name, every):
    """The path of one notebook, by number, by name or by path."""
    fitting = [path for path in every if name in (path.stem, path.name, path.stem.split("_")[0])]
    if not fitting and name.endswith(".ipynb") and Path(name).is_file():
        fitting = [Path(name).resolve()]
    if len(fitting) != 1:
        raise LabError(
            f"There is no notebook {name!r}." if not fitting else f"{name!r} names several notebooks.",
            expected=", ".join(path.stem for path in fitting or every) or "a path that ends in .ipynb",
            found=name,
            fix="labkit list",
        )
    return fitting[0]


def read(path):
    """One notebook as a `Source`; what is wrong with it stands in `problem`."""
    try:
        page = json.loads(path.read_text(encoding="utf-8"))
        cells = [(cell["cell_type"], cell["metadata"].get("tags", []), text_of(cell)) for cell in page["cells"]]
        measures = bool(page["metadata"].get("labkit", {}).get("measures"))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        return Source(path.stem, path, f"not a notebook: {type(error).__name__}: {error}", False, {})
    code = [(tags, text) for kind, tags, text in cells if kind == "code" and text.strip()]
    problem = None if code else "the notebook has no code cells"
    first = next((text for tags, text in code if "parameters" in tags), "")
    return Source(path.stem, path, problem, measures, assigned(first))


def text_of(cell):
    return "".join(cell["source"])


def assigned(source):
    """{name: default} of the assignments in a cell; also of `a, b = 1, 2`, which papermill's own inspection misses."""
    try:
        body = ast.parse(source).body
    except SyntaxError:
        return {}
    found = {}
    for node in body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                found.update(pairs(target, node.value))
    return found


def pairs(target, value):
    """Names and their literal values in one assignment; `UNKNOWN` where the value is computed."""
    if isinstance(target, ast.Name):
        try:
            return {target.id: ast.literal_eval(value)}
        except (ValueError, TypeError):
            return {target.id: UNKNOWN}
    if not isinstance(target, ast.Tuple | ast.List):
        return {}
    parts = value.elts if isinstance(value, ast.Tuple | ast.List) else [value] * len(target.elts)
    same = len(parts) == len(target.elts) and isinstance(value, ast.Tuple | ast.List)
    found = {}
    for part, its in zip(target.elts, parts, strict=False):
        found.update(pairs(part, its) if same else dict.fromkeys(pairs(part, value), UNKNOWN))
    return found


def typed(source, parameters):
    """The parameters as this notebook's types; LabError for an unknown name or a value that does not fit.

    Text is converted to the type of the notebook's default, so that values from a command line work.
    """
    unknown = [name for name in parameters if name not in source.parameters]
    if unknown:
        raise LabError(
            f"The notebook {source.name} has no parameter {unknown[0]!r}.",
            expected=", ".join(source.parameters) or "nothing: it has no cell tagged `parameters`",
            found=", ".join(parameters),
            fix="leave it out, or name the notebooks that have it",
        )
    return {name: convert(source, name, value) for name, value in parameters.items()}


def convert(source, name, value):
    """One value as the type of the notebook's default."""
    default = source.parameters[name]
    kind = None if default is UNKNOWN or default is None else type(default)
    try:
        value = from_text(value, kind) if isinstance(value, str) and kind is not str else value
        fits = kind is None or type(value) is kind or (kind is float and type(value) is int)
        json.dumps(value)
    except (ValueError, SyntaxError, KeyError, TypeError):
        fits = False
    if not fits:
        raise LabError(
            f"The parameter {name!r} of {source.name} cannot be {value!r}.",
            expected=f"{kind.__name__ if kind else 'text, numbers, lists or dicts'}, such as {default!r}",
            found=f"{value!r} ({type(value).__name__})",
        )
    return value


def from_text(text, kind):
    """Text from a command line as a value of `kind`; of the kind it looks like when that is None."""
    if kind is bool:
        return WORDS[text.lower()]
    if kind in (int, float):
        return kind(text)
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        if kind is None:
            return text
        raise


def digest(sources):
    """Hex digest of the notebooks and of labkit's own source: what a resumed batch must share with the first start."""
    package = Path(__file__).resolve().parent.parent
    parts = [(source.name, source.path) for source in sources]
    parts += [(path.relative_to(package).as_posix(), path) for path in sorted(package.rglob("*.py"))]
    lines = "".join(f"{sha256(path)}  {name}\n" for name, path in parts)
    return hashlib.sha256(lines.encode()).hexdigest()[:16]
