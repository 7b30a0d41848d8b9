"""Read Jupyter notebooks: their cells, their texts, their digest, and whether they have outputs."""

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

from labkit.errors import LabError, first_line
from labkit.files import short_digest

if TYPE_CHECKING:
    from nbformat import NotebookNode

HEADING = re.compile(r"#{1,6} +(.+)")  # of Markdown, at the beginning of a line


def read_notebook(path: Path) -> "NotebookNode":
    """Read a notebook file. Returns nbformat's node, whose `cells` have `source` as one text.

    Raises  LabError if the file is not a notebook
    """
    import nbformat

    try:
        return nbformat.read(path, as_version=4)
    except (
        ValueError,
        LookupError,
        TypeError,
        AttributeError,
        RecursionError,
        nbformat.ValidationError,
    ) as error:
        raise LabError(
            f"{path.name} is not a notebook.",
            expected="a file that JupyterLab wrote",
            found=first_line(error),
            fix="put the file back as it was, or leave it out",
        ) from error


def markdown_sources(path: Path) -> list[str]:
    """Return the text of each Markdown cell of a notebook, in order."""
    return [cell.source for cell in read_notebook(path).cells if cell.cell_type == "markdown"]


def cells_digest(path: Path) -> str:
    """Return a digest of the types and sources of a notebook's cells: 16 hex digits.

    Outputs are not part of the digest, so running the notebook does not change it.
    """
    cells = [[cell.cell_type, cell.source] for cell in read_notebook(path).cells]
    return short_digest(json.dumps(cells))


def has_outputs(path: Path) -> bool:
    """Return whether a cell of the notebook has an output."""
    return any(cell.get("outputs") for cell in read_notebook(path).cells)
