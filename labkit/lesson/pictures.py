"""The picture to remember of a lesson: a small PNG in `artifacts/pictures/`, one per run, which
the report shows.
"""

import base64
import io
import re
from typing import Any, NamedTuple

from labkit.errors import LessonError
from labkit.files import artifacts, atomic

FOLDER = "pictures"
DPI = 90  # a picture of 6.5 inches has 585 pixels, and 20 to 60 kB


class StoredPicture(NamedTuple):
    """Where a picture lies, relative to artifacts/, and what it shows in words."""

    file: str | None
    words: str | None


def keep(picture: Any, run_key: str) -> StoredPicture:
    """Store a picture beside the run, and return where it lies.

    picture  the name of the call of `labkit.plots` that drew it, or a figure
    run_key  the run that it belongs to; an earlier picture of this run is replaced
    Raises   LessonError for the name of a picture that was not drawn
    """
    from labkit.plots.canvas import in_words

    figure = _drawn(picture) if isinstance(picture, str) else picture
    file = f"{FOLDER}/{re.sub(r'[^A-Za-z0-9_.-]', '-', run_key)}.png"
    page = io.BytesIO()
    figure.savefig(page, format="png", dpi=DPI)
    with atomic(artifacts() / file) as temporary:
        temporary.write_bytes(page.getvalue())
    return StoredPicture(file, in_words(figure))


def _drawn(name):
    """Return the last picture that the call of this name drew."""
    from labkit.plots.canvas import drawn

    if name not in drawn:
        raise LessonError(
            f"No picture {name!r} was drawn in this lesson.",
            expected=" or ".join(drawn) or "a picture of labkit.plots in a cell above",
            found=name,
            fix='name the call that drew it: picture="ladder" for plots.ladder(...)',
        )
    return drawn[name]


def as_uri(file: str | None) -> str | None:
    """Return a stored picture as a data URI, for pages that fetch nothing; None where there is
    none.
    """
    path = artifacts() / file if file else None
    if path is None or not path.is_file():
        return None
    return "data:image/png;base64," + base64.b64encode(path.read_bytes()).decode()
