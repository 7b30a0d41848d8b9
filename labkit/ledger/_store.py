"""The ledger's file: rows in, rows out. SQLite with WAL and synchronous=FULL."""

import json
import sqlite3
import sys
import typing
from contextlib import closing, contextmanager, suppress
from dataclasses import fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from filelock import FileLock

from labkit.errors import LedgerError, require_known
from labkit.files import artifacts, atomic
from labkit.ledger import rows
from labkit.ledger.rows import EDITION

BUSY_TIMEOUT_S = 60
sqlite3.register_adapter(tuple, json.dumps)  # how a tuple is stored; `_decode` is the way back
# {type of a field: (in SQLite, in pandas)}
STORED = {
    str: ("TEXT", "object"),
    int: ("INTEGER", "Int64"),
    float: ("REAL", "float64"),
    bool: ("INTEGER", "boolean"),
    tuple: ("TEXT", "object"),
}


def tables():
    """{table name: row class} of everything the ledger can hold."""
    return {kind.TABLE: kind for kind in vars(rows).values() if hasattr(kind, "TABLE")}


def columns(kind):
    """{field: the types it may have, such as (float, NoneType)} of a row class; the first says how it is stored."""
    return {field.name: typing.get_args(field.type) or (field.type,) for field in fields(kind)}


def now():
    """The time as rows hold it: UTC, ISO 8601, to the microsecond."""
    return datetime.now(UTC).isoformat(timespec="microseconds")


def add(*new_rows, path=None):
    """Write the rows in one transaction, on disk when this returns; a row replaces an earlier one of the same key."""
    for row in new_rows:
        check_types(row)
    with connect(path) as connection:
        connection.execute("BEGIN IMMEDIATE")
        for row in new_rows:
            _ensure_table(connection, type(row))
            values = vars(row)
            same = _equal(row.KEY)  # UNIQUE does not see that None equals None
            connection.execute(f"DELETE FROM {row.TABLE} WHERE {same}", values)
            names, places = ", ".join(f'"{name}"' for name in values), ", ".join(f":{name}" for name in values)
            connection.execute(f"INSERT INTO {row.TABLE} ({names}) VALUES ({places})", values)
        connection.execute("COMMIT")


def find(kind, *, path=None, **wanted):
    """The rows of one class whose fields equal `wanted`, oldest first, as a list of that class; no pandas needed."""
    for name in wanted:
        require_known(name, columns(kind), f"field of {kind.__name__}")
    with connect(path) as connection:
        _ensure_table(connection, kind)
        connection.row_factory = sqlite3.Row
        query = f"SELECT * FROM {kind.TABLE} WHERE {_equal(wanted) or 1} ORDER BY rowid"
        stored = connection.execute(query, wanted).fetchall()
    try:
        return [row_of(kind, dict(values)) for values in stored]
    except (ValueError, TypeError, RecursionError) as error:
        raise LedgerError(
            f"The table {kind.TABLE} of the ledger is damaged.",
            expected="rows that labkit wrote",
            found=f"{type(error).__name__}: {error}"[:200],
            fix="move the ledger away",
        ) from error


def row_of(kind, stored):
    """The row of {column: stored value}; a column that is not there has the field's default."""
    known = columns(kind)
    return kind(**{name: _decode(value, known[name][0]) for name, value in stored.items() if name in known})


def load(table, *, path=None):
    """All rows of one table as a pandas DataFrame, one typed column a field; empty when there are none.

    Numbers that are unknown are missing (NaN or <NA>), never 0.
    """
    kind = row_class(table)
    return as_frame(kind, find(kind, path=path))


def as_frame(kind, found):
    """Rows of one class as a DataFrame, one typed column a field."""
    import pandas as pd

    typed = {name: STORED[types[0]][1] for name, types in columns(kind).items()}
    return pd.DataFrame(map(vars, found), columns=list(typed), dtype=object).astype(typed)


def export(folder: Path | None = None, *, path: Path | None = None) -> Any:
    """Write each table as CSV and Parquet; both can be rebuilt from the ledger at any time.

    Returns the written paths.
    """
    folder, written = folder or artifacts() / "export", []
    for name in tables():
        frame = load(name, path=path)
        for ending, write in (("csv", frame.to_csv), ("parquet", frame.to_parquet)):
            written.append(folder / f"{name}.{ending}")
            with atomic(written[-1]) as temporary:
                write(temporary, index=False)
    return written


@contextmanager
def connect(path=None):
    """A connection in WAL mode with full synchronisation, closed at the end."""
    path = Path(path or artifacts() / "ledger.sqlite")
    try:
        if edition_of(path) != EDITION:
            _begin(path)
        with closing(sqlite3.connect(path, timeout=BUSY_TIMEOUT_S, isolation_level=None)) as connection:
            connection.execute("PRAGMA synchronous=FULL")
            yield connection
    except (sqlite3.Error, OSError) as error:
        raise LedgerError(
            f"The ledger {path} cannot be used.",
            expected="a SQLite file this process may write, on a disk with room",
            found=f"{type(error).__name__}: {error}",
            fix="free the disk or the file, or write elsewhere (LABKIT_ARTIFACTS=FOLDER); a damaged file: move it away",
        ) from error


def edition_of(path):
    """The edition of the course whose lessons the rows of a ledger name; 0 in those before the third, None without one.

    It is SQLite's user_version, read from the head of the file. A connection would not do: one that is open while
    another process sets the file aside removes, at its end, the log of the ledger that came in its place.
    """
    try:
        with path.open("rb") as file:
            head = file.read(64)
    except FileNotFoundError:
        return None
    if head and not head.startswith(b"SQLite format 3\0"):
        raise sqlite3.DatabaseError("file is not a database")
    return int.from_bytes(head[60:], "big")


def _begin(path):
    """Make an empty ledger of this edition, and set one of another edition aside: its lessons had other numbers.

    The new file is renamed into its place when it is whole, so that no writer ever finds it half made.
    """
    with FileLock(path.with_name(".ledger.lock")):
        there = edition_of(path)
        if there == EDITION:  # another process made it meanwhile
            return
        if there is not None:
            _set_aside(path)
        with atomic(path) as temporary, closing(sqlite3.connect(temporary)) as made:
            made.execute(f"PRAGMA user_version={EDITION}")
            mode = made.execute("PRAGMA journal_mode=WAL").fetchone()[0]
            if mode != "wal":
                raise sqlite3.OperationalError(f"journal mode is {mode}: this file system cannot hold a WAL ledger")


def _set_aside(path):
    """Move a ledger of another edition, with all copies of it, into a folder of their own, and say where."""
    with closing(sqlite3.connect(path, timeout=BUSY_TIMEOUT_S)) as stored:
        stored.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    folder = path.with_name(f"set-aside-{now()[:19].replace(':', '-')}")
    folder.mkdir()
    for file in sorted(path.parent.glob(f"{path.stem}*")):
        file.rename(folder / file.name)
    said = f"The ledger is of another edition of the course, whose lessons had other numbers: it now lies in {folder}."
    print(said, file=sys.stderr)


def _ensure_table(connection, kind):
    """Create the table of a row class, or add the columns it gained since."""
    listed = {name: f'"{name}" {STORED[types[0]][0]}' for name, types in columns(kind).items()}
    unique = f"UNIQUE ({', '.join(kind.KEY)})"
    connection.execute(f"CREATE TABLE IF NOT EXISTS {kind.TABLE} ({', '.join(listed.values())}, {unique})")
    there = {row[1] for row in connection.execute(f"PRAGMA table_info({kind.TABLE})")}
    for name in listed.keys() - there:
        with suppress(sqlite3.OperationalError):  # another writer was first; if not, the next query says what is wrong
            connection.execute(f"ALTER TABLE {kind.TABLE} ADD COLUMN {listed[name]}")


def row_class(table):
    """The row class of a table name."""
    require_known(table, tables(), "table of the ledger")
    return tables()[table]


def check_types(row):
    """Refuse a value of another type, one that SQLite cannot hold, and NaN: unknown is None."""
    for name, types in columns(type(row)).items():
        value = getattr(row, name)
        if not _fits(value, types):
            known = " or ".join(kind.__name__ for kind in types).replace("NoneType", "None (unknown)")
            raise LedgerError(
                f"{type(row).__name__}.{name} does not fit the ledger.",
                expected=f"{known}, not NaN; in a tuple numbers",
                found=f"{value!r} ({type(value).__name__})",
            )


def _fits(value, types):
    """Whether a value can be stored as one of the types and come back the same, from an export too."""
    kind = type(value)
    if kind not in types and not (kind is int and float in types):
        return False
    if kind is tuple:
        return all(_fits(part, (float,)) and abs(part) < float("inf") for part in value)
    if kind is str:
        return value == value.encode("utf-8", "replace").decode("utf-8")  # no half of a surrogate pair
    if kind is int:
        return -(2**63) <= value < 2**63
    return value == value  # NaN does not equal itself


def _equal(names):
    """The condition that these columns have the values of that name; SQLite takes no name in brackets for a text."""
    return " AND ".join(f"[{name}] IS :{name}" for name in names)


def _decode(value, kind):
    """The Python value of a stored one; None stays None."""
    if value is None or kind not in (tuple, bool):
        return value
    return bool(value) if kind is bool else tuple(json.loads(value))
