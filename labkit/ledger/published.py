"""Results of the published experiments that the lessons rebuild, and how to set one's own beside them.

Times of different machines are never compared: each table is divided by its own baseline first.
"""

import functools
import tomllib
from pathlib import Path

from labkit.errors import require_known


@functools.cache
def _studies():
    """{study: its source, hardware, columns and rows} of published.toml."""
    return tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))


def table(study):
    """The table of one study, a DataFrame; `.attrs` has its source and hardware.

    Units stand in the column names (_s seconds, _ms, _bytes); accuracy is a fraction from 0 to 1.
    """
    import pandas as pd

    require_known(study, _studies(), "published study")
    known = _studies()[study]
    rows = [dict(zip(known["columns"], row, strict=False)) for row in known["rows"]]  # the last columns may be unknown
    frame = pd.DataFrame(rows).convert_dtypes()
    frame.attrs.update(source=known["source"], hardware=known["hardware"])
    return frame


def beside(own, study, column, *, by="variant", baseline=None):
    """One's own numbers beside the published and the recorded ones, each divided by its own baseline.

    own       rows or a DataFrame with the columns `by` and `column`, as in the published table
    by        the column, or a list of columns, that names a row
    baseline  the row that is 1; None: the first of `own`
    returns   a DataFrame, a row for each name and a column for each place; what nobody measured is missing
    """
    import pandas as pd

    own = own if isinstance(own, pd.DataFrame) else pd.DataFrame(own)
    baseline = own.set_index(by).index[0] if baseline is None else baseline
    places = {"here": own, **_published_here(study, column), **_recorded(study)}
    shares = {place: _share(frame, column, by, baseline) for place, frame in places.items()}
    order = list(dict.fromkeys(name for values in shares.values() for name in values.index))
    return pd.DataFrame({place: values.reindex(order) for place, values in shares.items()}).rename_axis(by)


def _published_here(study, column):
    """{title: the published table}, if it has such a column."""
    frame = table(study)
    return {f"published ({frame.attrs['hardware']})": frame} if column in frame else {}


def _recorded(study):
    """{title: rows of this study on the two machines that differ most from this one}."""
    from labkit import ledger

    frame = ledger.recorded("trainings", most_different=2)
    frame = frame[frame["study"] == study]
    frame = frame.assign(error=100 * (1 - frame["accuracy"]))  # as some studies give it
    return {f"{hardware}, {date}": rows for (hardware, date), rows in frame.groupby(["hardware", "recorded_on"])}


def _share(frame, column, by, baseline):
    """A column divided by its value in the baseline's row; all missing where there is no baseline."""
    values = frame.set_index(by)[column].astype("Float64")
    return values / (values.loc[baseline] if baseline in values.index else float("nan"))
