"""Results of the published experiments that the lessons rebuild, and how to set one's own beside them.

Times of different machines are never compared: each table is divided by its own baseline first.
"""

import functools
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from labkit.errors import require_known
from labkit.ledger._recorded import recorded

if TYPE_CHECKING:
    import pandas


@functools.cache
def _studies():
    """{study: its source, hardware, columns and rows} of published.toml."""
    return tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))


def table(study: str) -> "pandas.DataFrame":
    """The table of one study, a DataFrame; `.attrs` has its source and hardware.

    Units stand in the column names (_s seconds, _ms, _bytes); accuracy is a fraction from 0 to 1.
    """
    import pandas as pd

    require_known(study, _studies(), "published table")
    known = _studies()[study]
    frame = pd.DataFrame(known["rows"], columns=known["columns"]).convert_dtypes()
    frame.attrs.update(source=known["source"], hardware=known["hardware"])
    return frame


def beside(own: Any, study: str, column: str) -> "pandas.DataFrame":
    """One's own numbers beside the published and the recorded ones, each divided by its own baseline.

    own      rows or a DataFrame with `variant` and the column, as in the published table; the first is the baseline
    returns  a DataFrame, a row for each variant and a column for each place; what nobody measured is missing
    """
    import pandas as pd

    own, published = pd.DataFrame(own), table(study)
    elsewhere = recorded("trainings")
    elsewhere = elsewhere[elsewhere["study"] == study].fillna({"instructions": ""})
    elsewhere = elsewhere.groupby(["hardware", "instructions", "recorded_on"])
    places = {"here": own, f"published ({published.attrs['hardware']})": published}
    places |= {", ".join(filter(None, place)): rows for place, rows in elsewhere}
    baseline = own["variant"].iloc[0]
    return pd.concat({place: _shares(frame, column, baseline) for place, frame in places.items()}, axis=1)


def _shares(frame, column, baseline):
    """{variant: its share of the baseline's value}; all are missing where there is no baseline."""
    values = frame.set_index("variant")[column].astype("Float64")
    return values / values.get(baseline, float("nan"))
