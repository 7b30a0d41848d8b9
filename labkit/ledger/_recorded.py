"""Read results that were measured on other, named hardware.

They lie in files recorded/HARDWARE/NAME.json. A file holds a page or a list of pages. A page is
what one experiment, or one lesson, measured on one machine; `_record.page_of` lists its keys. Pages
of the third edition of the course have no key "experiment": there the file has the name of the
lesson.
"""

import functools
import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from labkit.errors import LedgerError
from labkit.files import artifacts, root
from labkit.ledger._store import as_frame, row_class, row_of, tables
from labkit.ledger.rows import Machine, Measured, Run
from labkit.ledger.slugs import THIRD, experiment_of, slug

if TYPE_CHECKING:
    import pandas

# {column of `recorded`: what a page calls it}
ORIGIN_COLUMNS = {
    "hardware": "hardware",
    "instructions": "instructions",
    "profile": "profile",
    "recorded_on": "date",
    "recorded_commit": "commit",
    "recorded_edition": "edition",
    "experiment": "experiment",
    "network": "network",
}


def recorded(
    table: str, *, experiment: str | None = None, folder: str | Path | None = None
) -> "pandas.DataFrame":
    """Return the rows of a table that were measured on other, named hardware, as a DataFrame.

    table       name of a table of the ledger, such as "latencies"
    experiment  only the rows of this experiment, such as "convnext-training", or of the lesson of
                this slug, such as "compile-and-amp"; None: all
    folder      where to look; None: artifacts/recorded of the course, and `recorded` in the folder
                that LABKIT_ARTIFACTS names

    The reader's own ledger is not read. Beside the columns of the table there are `hardware`,
    `instructions` (the most advanced instruction set of the hardware), `profile`, `recorded_on`,
    `recorded_commit` and `recorded_edition`. `experiment` and `network` say what was measured.
    """
    kind = row_class(table)
    rows = []
    origins = []  # of each row: its page, with the row's own experiment and network
    for page in _pages(folder):
        for row in page["tables"][table]:
            origin = page | _experiment_and_network(row)
            if experiment in (None, page["experiment"], origin["experiment"]):
                rows.append(row)
                origins.append(origin)
    frame = as_frame(kind, rows)
    for column, key in ORIGIN_COLUMNS.items():
        frame[column] = [origin.get(key) for origin in origins]
    return frame


def recorded_rows(table):
    """Return the recorded rows of a table, grouped by where and when they were measured.

    table    name of a table of the ledger
    returns  {"hardware, instructions, recorded date (edition, profile)": list of rows}; a group
             without rows is left out
    """
    rows_by_origin = {}
    for page in _pages(None):
        rows = page["tables"][table]
        if rows:
            hardware = ", ".join(filter(None, (page["hardware"], page.get("instructions"))))
            run = ", ".join(filter(None, (f"edition {page['edition']}", page.get("profile"))))
            rows_by_origin.setdefault(f"{hardware}, recorded {page['date']} ({run})", []).extend(
                rows
            )
    return rows_by_origin


class OnRecord(NamedTuple):
    """The number of recorded rows (`rows`) of one experiment on one machine, on one date."""

    experiment: str
    hardware: str
    date: str
    profile: str
    edition: int
    rows: int


def on_record(folder: str | Path | None = None) -> list[OnRecord]:
    """Count the recorded rows by experiment, hardware and date, and return a list of `OnRecord`.

    folder  as in `recorded`
    """
    counts: Counter = Counter()
    for page in _pages(folder):
        for row in _results(page):
            origin = page | _experiment_and_network(row)
            group = OnRecord(
                experiment=origin["experiment"],
                hardware=origin["hardware"],
                date=page["date"],
                profile=page.get("profile") or "",
                edition=page["edition"],
                rows=0,
            )
            counts[group] += 1
    return [group._replace(rows=rows) for group, rows in sorted(counts.items())]


def _results(page):
    """Yield the rows of a page that are results: all but `Machine` and `Run`."""
    for rows in page["tables"].values():
        yield from (row for row in rows if not isinstance(row, (Machine, Run)))


def _experiment_and_network(row):
    """Return {"experiment", "network"} of a measured row; {} for a row of another kind."""
    if not isinstance(row, Measured):
        return {}
    return {"experiment": row.experiment, "network": row.network}


def pages_of(machine, folder):
    """Return recorded tables of machines of the same kind: a list of {table name: list of rows}.

    There is one entry for each page that was recorded on such a machine.

    machine  a `Machine` row
    folder   as in `recorded`
    """
    selected = []
    for page in _pages(folder):
        kinds = {row.kind for row in page["tables"]["machines"]}
        if machine.kind in kinds:
            selected.append(page["tables"])
    return selected


def _pages(folder):
    """Return the contents of all recorded JSON files (pages) as a list of dictionaries.

    page["tables"] is {table name: list of row objects}.

    folder  as in `recorded`
    """
    if folder:
        folders = [Path(folder)]
    else:
        folders = [root() / "artifacts" / "recorded"]
        if artifacts() / "recorded" not in folders:
            folders.append(artifacts() / "recorded")
    pages = []
    for recorded_folder in folders:
        for path in sorted(recorded_folder.rglob("*.json")):
            pages += _read(path, path.stat().st_mtime_ns)
    return pages


@functools.cache
def _read(path, changed_ns):
    """Return the pages of a recorded file, as `_pages` does.

    changed_ns  time of the file's last change in ns. The result is cached until this time changes
    Raises      LedgerError where the file cannot be read
    """
    try:
        return [_page(stored) for stored in stored_pages(path)]
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise LedgerError(
            f"The recorded file {path} cannot be read.",
            expected="a page that labkit wrote, or a list of such pages",
            found=f"{type(error).__name__}: {error}"[:200],
            fix="take it away, or record it again: `labkit ledger record`, `labkit experiment "
            "NAME --record`",
        ) from error


def stored_pages(path: Path) -> list[dict[str, Any]]:
    """Return the pages of a recorded file as JSON dicts, with edition and experiment filled in."""
    stored = json.loads(path.read_bytes())
    pages = stored if isinstance(stored, list) else [stored]
    return [_with_edition(page, path.stem) for page in pages]


def _with_edition(page, file_name):
    """Return a page with its edition and its experiment filled in.

    Pages of the third edition lack both; their experiment follows from the name of the file.
    """
    edition = page.get("edition") or THIRD
    return page | {
        "edition": edition,
        "experiment": page.get("experiment") or slug(file_name, edition),
    }


def _page(stored):
    """Return a page of a JSON file with row objects in place of dicts.

    A measured row without an experiment or a network gets that of its page.
    """
    by_table = {}
    for table, kind in tables().items():
        rows = (row_of(kind, row) for row in stored["tables"].get(table, []))
        by_table[table] = [_with_experiment(row, stored) for row in rows]
    return stored | {"tables": by_table}


def _with_experiment(row, page):
    """Return a row with experiment and network; where it has none, it gets those of its page."""
    if not isinstance(row, Measured):
        return row
    network = row.network or page.get("network")
    return replace(row, experiment=experiment_of(row, page["experiment"]), network=network)
