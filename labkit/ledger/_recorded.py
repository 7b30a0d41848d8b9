"""Results of other, named hardware: files under recorded/HARDWARE/ with one page each, or a list of
pages.

A page holds what one experiment, or one lesson, measured on one machine. It says which experiment
that is; a file of the third edition does not, and is named by its lesson.
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
WHOSE = {
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

    experiment  only the rows of this experiment, such as "convnext-training", or of the lesson of
                this slug, such as "compile-and-amp"; None: all
    folder      where to look; None: artifacts/recorded of the course, and where LABKIT_ARTIFACTS
                says

    Never mixed with the reader's own rows: the columns `hardware`, `instructions` (the last of its
    instruction sets), `profile`, `recorded_on`, `recorded_commit` and `recorded_edition` say whose
    they are, `experiment` and `network` what was measured.
    """
    kind = row_class(table)
    rows = []
    origins = []  # of each row: its page, with what the row says of itself
    for page in _pages(folder):
        for row in page["tables"][table]:
            origin = page | _subject(row)
            if experiment in (None, page["experiment"], origin["experiment"]):
                rows.append(row)
                origins.append(origin)
    frame = as_frame(kind, rows)
    for column, key in WHOSE.items():
        frame[column] = [origin.get(key) for origin in origins]
    return frame


def recorded_rows(table):
    """Return the recorded rows of a table, for the machines that have some.

    They are {"hardware, instructions, recorded date (edition, profile)": rows}.
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
    """How many rows of one experiment a machine has on record."""

    experiment: str
    hardware: str
    date: str
    profile: str
    edition: int
    rows: int


def on_record(folder: str | Path | None = None) -> list[OnRecord]:
    """Return what is on record, by experiment, hardware and date.

    folder  as in `recorded`
    """
    counts: Counter = Counter()
    for page in _pages(folder):
        for row in _results(page):
            origin = page | _subject(row)
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
    """Yield the rows of a page that say what was found, not where."""
    for rows in page["tables"].values():
        yield from (row for row in rows if not isinstance(row, (Machine, Run)))


def _subject(row):
    """Return the experiment and the network of a measured row as a dict; of a row of another
    kind, {}.
    """
    if not isinstance(row, Measured):
        return {}
    return {"experiment": row.experiment, "network": row.network}


def pages_of(machine, folder):
    """Return the tables of each recorded page of machines of one kind: {name of a table: its
    rows}.
    """
    selected = []
    for page in _pages(folder):
        kinds = {row.kind for row in page["tables"]["machines"]}
        if machine.kind in kinds:
            selected.append(page["tables"])
    return selected


def _pages(folder):
    """Return the recorded pages as dicts whose "tables" have the rows as objects of their
    classes.
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
    """Return the pages of one recorded file as it was at that time: it is read again only after
    it changed.
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
    """Return the pages of a file as they are stored, each with its edition and its experiment."""
    stored = json.loads(path.read_bytes())
    pages = stored if isinstance(stored, list) else [stored]
    return [_named(page, path.stem) for page in pages]


def _named(page, file_name):
    """Return a page with its edition and its experiment: those of a file of the third edition
    follow from its name.
    """
    edition = page.get("edition") or THIRD
    return page | {
        "edition": edition,
        "experiment": page.get("experiment") or slug(file_name, edition),
    }


def _page(stored):
    """Return a stored page with rows in place of dicts; each measured row says its experiment
    and its network.
    """
    by_table = {}
    for table, kind in tables().items():
        rows = (row_of(kind, row) for row in stored["tables"].get(table, []))
        by_table[table] = [_with_experiment(row, stored) for row in rows]
    return stored | {"tables": by_table}


def _with_experiment(row, page):
    """Return a row with what its page says of all rows, where it does not say it itself."""
    if not isinstance(row, Measured):
        return row
    network = row.network or page.get("network")
    return replace(row, experiment=experiment_of(row, page["experiment"]), network=network)
