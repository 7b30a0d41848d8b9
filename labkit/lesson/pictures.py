"""Store the picture to remember of a lesson, which the report shows.

It is a small PNG in `artifacts/pictures/`, one per run.
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
    """The file of a picture, relative to artifacts/, and what the picture shows, in words."""

    file: str | None
    words: str | None


def keep(picture: Any, run_key: str) -> StoredPicture:
    """Store a picture as the picture of a run, and return its `StoredPicture`.

    picture  the name of the function of `labkit.plots` that drew it, such as "ladder", or a figure
    run_key  key of the run; an earlier picture of this run is replaced
    Raises   LessonError where no function of that name has drawn a picture
    """
    from labkit.plots.canvas import in_words

    figure = _last_drawn(picture) if isinstance(picture, str) else picture
    file = f"{FOLDER}/{re.sub(r'[^A-Za-z0-9_.-]', '-', run_key)}.png"
    page = io.BytesIO()
    figure.savefig(page, format="png", dpi=DPI)
    with atomic(artifacts() / file) as temporary:
        temporary.write_bytes(page.getvalue())
    return StoredPicture(file, in_words(figure))


def _last_drawn(name):
    """Return the figure that the function of this name in `labkit.plots` drew last."""
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
    """Return a stored picture as a data URI, for pages that fetch nothing; else None."""
    path = artifacts() / file if file else None
    if path is None or not path.is_file():
        return None
    return "data:image/png;base64," + base64.b64encode(path.read_bytes()).decode()
