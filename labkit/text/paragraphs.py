"""The paragraphs of the course's own lessons: text that is at hand everywhere, and whose lesson is known."""

import json
import re
from typing import NamedTuple

from labkit.files import notebooks

FEWEST_WORDS = 6  # shorter ones are headings and labels


class Paragraph(NamedTuple):
    """lesson: the notebook's name; text: in one line."""

    lesson: str
    text: str


def paragraphs():
    """Every paragraph of every lesson, in the order a reader meets them: a list of `Paragraph`. No tables, no code."""
    found = []
    for path in notebooks():
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        written = ("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
        parts = (" ".join(part.split()) for text in written for part in re.split(r"\n\s*\n", text))
        found += [Paragraph(path.stem, part) for part in parts if _is_prose(part)]
    return found


def _is_prose(part):
    return not part.startswith("|") and len(part.split()) >= FEWEST_WORDS
