"""Read the results of the published experiments that the lessons rebuild."""

import functools
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

from labkit.errors import require_known

if TYPE_CHECKING:
    import pandas


@functools.cache
def _studies():
    """Return the tables of published.toml: {study: {"source", "hardware", "columns", "rows"}}."""
    return tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))


def studies() -> list[str]:
    """Return the names of the published tables, in order of the file."""
    return list(_studies())


def table(study: str) -> "pandas.DataFrame":
    """Return the table of one study as a DataFrame; its `.attrs` name source and hardware.

    Units stand in the column names (_s seconds, _ms, _bytes); accuracy is a fraction from 0 to 1.
    """
    import pandas as pd

    require_known(study, _studies(), "published table")
    stored = _studies()[study]
    frame = pd.DataFrame(stored["rows"], columns=stored["columns"]).convert_dtypes()
    frame.attrs.update(source=stored["source"], hardware=stored["hardware"])
    return frame
