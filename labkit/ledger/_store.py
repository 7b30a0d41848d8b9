"""The ledger's file: rows in, rows out. SQLite with WAL and synchronous=FULL."""

import json
import sqlite3
import typing
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from filelock import FileLock

from labkit.errors import LedgerError, require_known
from labkit.files import artifacts, atomic, atomic_together
from labkit.ledger import rows
from labkit.ledger.rows import EDITION

BUSY_TIMEOUT_S = 60
SYNCHRONOUS = "FULL"  # of SQLite: a row is on the disk when `add` returns
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
    """Return everything that the ledger can hold: {table name: row class}."""
    return {kind.TABLE: kind for kind in vars(rows).values() if hasattr(kind, "TABLE")}


def columns(kind):
    """Return the types that each field of a row class may have: {field: types}, such as (float,
    NoneType).

    The first says how it is stored.
    """
    return {field.name: typing.get_args(field.type) or (field.type,) for field in fields(kind)}


def now():
    """Return the time as rows hold it: UTC, ISO 8601, to the microsecond."""
    return datetime.now(UTC).isoformat(timespec="microseconds")


def add(*new_rows, path=None):
    """Write the rows in one transaction, on disk when this returns; a row replaces an earlier
    one of the same key.
    """
    for row in new_rows:
        check_types(row)
    with connect(path) as connection:
        connection.execute("BEGIN IMMEDIATE")
        for row in new_rows:
            ensure_table(connection, type(row))
            statements = statements_of(type(row))
            # UNIQUE does not see that None equals None
            connection.execute(statements.delete, vars(row))
            connection.execute(statements.insert, vars(row))
        connection.execute("COMMIT")


def find(kind, *, path=None, **criteria):
    """Return the rows of one class that have these values in their fields, oldest first, as a
    list of that class.
    """
    for name in criteria:
        require_known(name, columns(kind), f"field of {kind.__name__}")
    with connect(path) as connection:
        ensure_table(connection, kind)
        connection.row_factory = sqlite3.Row
        query = f"{statements_of(kind).select} WHERE {_equal(criteria) or 1} ORDER BY rowid"
        stored = connection.execute(query, criteria).fetchall()
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
    """Return the row of {column: stored value}; a column that is not there has the field's
    default.
    """
    types = columns(kind)
    fields_present = {
        name: _decode(value, types[name][0]) for name, value in stored.items() if name in types
    }
    return kind(**fields_present)


def load(table, *, path=None):
    """Return all rows of one table as a pandas DataFrame, one typed column a field; empty when
    there are none.

    Numbers that are unknown are missing (NaN or <NA>), never 0.
    """
    kind = row_class(table)
    return as_frame(kind, find(kind, path=path))


def as_frame(kind, rows):
    """Return rows of one class as a DataFrame, one typed column a field."""
    import pandas as pd

    typed = {name: STORED[types[0]][1] for name, types in columns(kind).items()}
    return pd.DataFrame(map(vars, rows), columns=list(typed), dtype=object).astype(typed)


def export(folder: Path | None = None, *, path: Path | None = None) -> Any:
    """Write each table as CSV and Parquet; both can be rebuilt from the ledger at any time.

    Returns the written paths.
    """
    from labkit.device import packages

    packages.imported("pyarrow", problem="Tables cannot be written as Parquet files.")
    folder = folder or artifacts() / "export"
    paths = [folder / f"{name}.{ending}" for name in tables() for ending in ("csv", "parquet")]
    with atomic_together(*paths) as temporaries:
        for number, name in enumerate(tables()):
            frame = load(name, path=path)
            frame.to_csv(temporaries[2 * number], index=False)
            frame.to_parquet(temporaries[2 * number + 1], index=False)
    return paths


@contextmanager
def connect(path=None):
    """Yield a connection in WAL mode with full synchronisation, closed at the end."""
    path = Path(path or artifacts() / "ledger.sqlite")
    try:
        if not path.exists():
            _begin(path)
        with closing(
            sqlite3.connect(path, timeout=BUSY_TIMEOUT_S, isolation_level=None)
        ) as connection:
            _require_edition(path, edition_of(connection))
            connection.execute(f"PRAGMA synchronous={SYNCHRONOUS}")
            yield connection
    except (sqlite3.Error, OSError) as error:
        raise LedgerError(
            f"The ledger {path} cannot be used.",
            expected="a SQLite file this process may write, on a disk with room",
            found=f"{type(error).__name__}: {error}",
            fix="free the disk or the file, or write elsewhere (LABKIT_ARTIFACTS=FOLDER); a "
            "damaged file: move it away",
        ) from error


def edition_of(connection):
    """Return the edition of the course whose lessons the rows of a ledger name; 0 in those
    before the third.
    """
    return connection.execute("PRAGMA user_version").fetchone()[0]


def _require_edition(path, edition):
    """Refuse the ledger of another edition: its lessons had other numbers."""
    if edition != EDITION:
        raise LedgerError(
            f"The ledger {path} is of another edition of the course, whose lessons "
            "had other numbers.",
            expected=f"edition {EDITION}",
            found=f"edition {edition}" if edition else "an edition before the third",
            fix="move it to another folder, or write elsewhere (LABKIT_ARTIFACTS=FOLDER): mv "
            f"{path} FOLDER",
        )


def _begin(path):
    """Make an empty ledger of this edition, renamed into its place when it is whole: no writer
    finds it half made.
    """
    with FileLock(path.with_name(".ledger.lock")):
        if path.exists():  # another process made it meanwhile
            return
        with atomic(path) as temporary, closing(sqlite3.connect(temporary)) as connection:
            connection.execute(f"PRAGMA synchronous={SYNCHRONOUS}")
            connection.execute(f"PRAGMA user_version={EDITION}")
            mode = connection.execute("PRAGMA journal_mode=WAL").fetchone()[0]
            if mode != "wal":
                raise sqlite3.OperationalError(
                    f"journal mode is {mode}: this file system cannot hold a WAL ledger"
                )


@dataclass(frozen=True)
class Statements:
    """The SQL of one table."""

    create: str
    select: str  # all columns of all rows
    insert: str  # takes {field: value}
    delete: str  # the row of the same key; takes {field: value}


@cache
def statements_of(kind):
    """Return the `Statements` of a row class.

    Names stand in brackets: SQLite would take an unknown name in quotation marks for a text.
    """
    names = list(columns(kind))
    listed = ", ".join(f"[{name}]" for name in names)
    values = ", ".join(f":{name}" for name in names)
    typed = ", ".join(_typed_columns(kind).values())
    unique = ", ".join(f"[{name}]" for name in kind.KEY)
    return Statements(
        create=f"CREATE TABLE IF NOT EXISTS {kind.TABLE} ({typed}, UNIQUE ({unique}))",
        select=f"SELECT {listed} FROM {kind.TABLE}",
        insert=f"INSERT INTO {kind.TABLE} ({listed}) VALUES ({values})",
        delete=f"DELETE FROM {kind.TABLE} WHERE {_equal(kind.KEY)}",
    )


def _typed_columns(kind):
    """Return the columns of a row class with their types: {field: column}."""
    return {name: f"[{name}] {STORED[types[0]][0]}" for name, types in columns(kind).items()}


def ensure_table(connection, kind):
    """Create the table of a row class, or add the columns it gained since."""
    connection.execute(statements_of(kind).create)
    present = {row[1] for row in connection.execute(f"PRAGMA table_info({kind.TABLE})")}
    for name, typed in _typed_columns(kind).items():
        if name not in present:
            # another writer was first; if not, the next query says why
            with suppress(sqlite3.OperationalError):
                connection.execute(f"ALTER TABLE {kind.TABLE} ADD COLUMN {typed}")


def row_class(table):
    """Return the row class of a table name."""
    require_known(table, tables(), "table of the ledger")
    return tables()[table]


def check_types(row):
    """Refuse a value of another type, one that SQLite cannot hold, and NaN: unknown is None."""
    for name, types in columns(type(row)).items():
        value = getattr(row, name)
        if not _fits(value, types):
            names = " or ".join(kind.__name__ for kind in types).replace(
                "NoneType", "None (unknown)"
            )
            raise LedgerError(
                f"{type(row).__name__}.{name} does not fit the ledger.",
                expected=f"{names}, not NaN; in a tuple numbers",
                found=f"{value!r} ({type(value).__name__})",
            )


def _fits(value, types):
    """True if a value can be stored as one of the types and come back the same, from an export
    too.
    """
    kind = type(value)
    if kind not in types and not (kind is int and float in types):
        return False
    if kind is tuple:
        return all(_fits(number, (float,)) and abs(number) < float("inf") for number in value)
    if kind is str:
        # no half of a surrogate pair
        return value == value.encode("utf-8", "replace").decode("utf-8")
    if kind is int:
        return -(2**63) <= value < 2**63
    return value == value  # NaN does not equal itself


def _equal(names):
    """Return the condition that these columns have the values of that name."""
    return " AND ".join(f"[{name}] IS :{name}" for name in names)


def _decode(value, kind):
    """Return the Python value of a stored one; None stays None."""
    if value is None or kind not in (tuple, bool):
        return value
    return bool(value) if kind is bool else tuple(json.loads(value))
