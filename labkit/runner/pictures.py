"""Write what the pictures of a notebook say into their alternative texts, for screen readers."""

import re
import textwrap

MAX_CHARACTERS = 250  # of a picture's message: more is tiring to be read aloud
# beginnings of texts that are not about the picture above them
OTHER_SUBJECTS = ("#", "**Exercise", "**Try next", "**Later")


def name_pictures(cells):
    """Put the message of each picture at the beginning of its alternative text.

    The message is what the text below the picture says about it.

    cells  cells of an executed notebook, in order; their outputs are changed in place
    """
    for position, cell in enumerate(cells):
        message = _message(cells[position + 1 :])
        for output in cell.get("outputs", []):
            if not message or "image/png" not in output.get("data", {}):
                continue
            # a picture of the user's own code may have no metadata, or a width and no text
            metadata = output.setdefault("metadata", {}).setdefault("image/png", {})
            text = metadata.get("alt", "")
            if not text.startswith(message):
                metadata["alt"] = f"{message} {text}".strip()


def _message(cells):
    """Return what the text below a picture says about it, at most MAX_CHARACTERS long.

    These are the first paragraph's sentences, without questions and without sentences that end with
    a colon, because they introduce code. The result is "" where the text is not about the picture:
    where a heading, an exercise, another picture or the end of the notebook comes first.

    cells  the cells below the picture
    """
    next_cell = None
    for cell in cells:
        if cell.cell_type == "markdown" or _has_picture(cell):
            next_cell = cell
            break
    if (
        next_cell is None
        or next_cell.cell_type == "code"
        or next_cell.source.startswith(OTHER_SUBJECTS)
    ):
        return ""
    paragraph = next_cell.source.split("\n\n")[0]
    without_markup = re.sub(r"\[([^]]+)\]\([^)]*\)|[*`$]", r"\1", paragraph)
    sentences = re.split(r"(?<=[.!?])\s+", without_markup)
    statements = [sentence for sentence in sentences if not sentence.endswith(("?", ":"))]
    return textwrap.shorten(" ".join(statements), MAX_CHARACTERS, placeholder=" …")


def _has_picture(cell):
    """Return whether a cell has a PNG picture among its outputs."""
    return any("image/png" in output.get("data", {}) for output in cell.get("outputs", []))
