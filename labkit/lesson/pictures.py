"""Store the one picture of a lesson that a reader should remember, for the report.

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
    """A picture that was stored for a run.

    file   path of the PNG, relative to artifacts/
    words  what the picture shows, in words
    """

    file: str | None
    words: str | None


def keep(picture: Any, run_key: str) -> StoredPicture:
    """Store a picture as the one picture of a run. Returns its `StoredPicture`.

    picture  a figure, or the name of the function of `labkit.plots` that drew it, such as "ladder"
    run_key  key of the run; an earlier picture of this run is replaced
    Raises   LessonError if no function of this name has drawn a picture
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
    """Return the figure that this function of `labkit.plots` drew last.

    name    name of the function
    Raises  LessonError if it has drawn none
    """
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
    """Return a stored picture as a data URI, which a page can hold; None if there is no such file.

    file  path relative to artifacts/, or None
    """
    path = artifacts() / file if file else None
    if path is None or not path.is_file():
        return None
    return "data:image/png;base64," + base64.b64encode(path.read_bytes()).decode()
