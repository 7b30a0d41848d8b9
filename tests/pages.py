"""What the tests of a lesson's page share: its statements, and what one of its claims says."""

import ast
import re

import nbformat

from labkit.files import root
from labkit.lesson import verdicts


def statements_of(lesson):
    """The statements of a notebook's code cells; a cell that writes a file runs none of its own."""
    cells = nbformat.read(root() / "notebooks" / f"{lesson}.ipynb", as_version=4).cells
    running = [
        cell
        for cell in cells
        if cell.cell_type == "code" and not cell.source.startswith("%%writefile")
    ]
    sources = (re.sub("^[%!].*", "", cell.source, flags=re.MULTILINE) for cell in running)
    return [statement for source in sources for statement in ast.parse(source).body]


def judged(statements, claim_id, bound):
    """The verdict of a claim among these statements on what is bound."""
    heard = {}

    def claim(name, sentence, value, *, reason=None, unit=None, **bounds):
        heard[name] = verdicts.of_claim(verdicts.weigh(value), verdicts.Bounds(**bounds), reason)[0]

    for statement in statements:
        text = ast.unparse(statement)
        if text.startswith(f"claim('{claim_id}'"):
            exec(text, bound | {"claim": claim})
    return heard[claim_id]
