"""Write rows to the ledger's SQLite file, and read them back.

Every write is on the disk when it returns: the file uses a write-ahead log (WAL) with
synchronous=FULL.
"""

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
    """Return all row classes that the ledger can hold: {table name: row class}."""
    return {kind.TABLE: kind for kind in vars(rows).values() if hasattr(kind, "TABLE")}


def columns(kind):
    """Return {field: types of its values} of a row class; the types are a tuple.

    An optional number, for example, has (float, NoneType). The first type says how the field is
    stored.
    """
    return {field.name: typing.get_args(field.type) or (field.type,) for field in fields(kind)}


def now():
    """Return the present time as rows store it: UTC, ISO 8601, to the microsecond."""
    return datetime.now(UTC).isoformat(timespec="microseconds")


def add(*new_rows, path=None):
    """Write rows in one transaction; they are on the disk when this returns.

    A row replaces an earlier row of the same table whose KEY fields are equal.

    path    path of the ledger; None: artifacts/ledger.sqlite
    Raises  LedgerError for a value that does not fit its field, and where the file cannot be used
    """
    for row in new_rows:
        check_types(row)
    with connect(path) as connection:
        connection.execute("BEGIN IMMEDIATE")
        for row in new_rows:
            ensure_table(connection, type(row))
            statements = statements_of(type(row))
            # SQL's UNIQUE takes two NULLs for different: an earlier row is deleted by hand
            connection.execute(statements.delete, vars(row))
            connection.execute(statements.insert, vars(row))
        connection.execute("COMMIT")


def find(kind, *, path=None, **criteria):
    """Return the rows of one class whose fields have the given values, as a list.

    The rows are in the order in which they were written.

    kind      the row class
    path      path of the ledger; None: artifacts/ledger.sqlite
    criteria  field=value; without any, all rows are returned
    Raises    LedgerError where the table is damaged or the file cannot be used
    """
    for name in criteria:
        require_known(name, columns(kind), f"field of {kind.__name__}")
    with connect(path) as connection:
        ensure_table(connection, kind)
        connection.row_factory = sqlite3.Row
        query = f"{statements_of(kind).select} WHERE {_condition(criteria) or 1} ORDER BY rowid"
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
    """Build a row of class `kind` from {column: stored value}.

    A field without a column takes its default; a column without a field is ignored.
    """
    types = columns(kind)
    fields_present = {
        name: _decode(value, types[name][0]) for name, value in stored.items() if name in types
    }
    return kind(**fields_present)


def load(table, *, path=None):
    """Return all rows of one table as a pandas DataFrame, with one typed column for each field.

    The frame is empty when there are no rows. Unknown numbers are missing (NaN or <NA>), never 0.

    path  path of the ledger; None: artifacts/ledger.sqlite
    """
    kind = row_class(table)
    return as_frame(kind, find(kind, path=path))


def as_frame(kind, rows):
    """Return rows of class `kind` as a pandas DataFrame, with one typed column for each field."""
    import pandas as pd

    typed = {name: STORED[types[0]][1] for name, types in columns(kind).items()}
    return pd.DataFrame(map(vars, rows), columns=list(typed), dtype=object).astype(typed)


def export(folder: Path | None = None, *, path: Path | None = None) -> Any:
    """Write each table of the ledger as a CSV file and a Parquet file, all or none.

    folder   where to write; None: artifacts/export
    path     path of the ledger; None: artifacts/ledger.sqlite
    returns  the written paths
    Raises   Unavailable without pyarrow
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
    """Open the ledger for a `with` block, and yield the SQLite connection.

    The ledger is made if it is missing. Every commit is flushed to the disk (synchronous=FULL).

    path    path of the ledger; None: artifacts/ledger.sqlite
    Raises  LedgerError where the file cannot be used, or belongs to another edition of the course
    """
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
    """Return the number of the edition of the course that wrote a ledger.

    It is 0 for editions before the third.
    """
    return connection.execute("PRAGMA user_version").fetchone()[0]


def _require_edition(path, edition):
    """Raise LedgerError for a ledger of another edition of the course.

    Between editions the numbers of the lessons change, so its rows would count for wrong lessons.
    """
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
    """Make an empty ledger of this edition, unless another process has made it meanwhile.

    The file is made under a temporary name and renamed when it is complete, so no other process
    opens an incomplete ledger.
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

    Names stand in brackets. Between quotation marks SQLite would take an unknown name for a text.
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
        delete=f"DELETE FROM {kind.TABLE} WHERE {_condition(kind.KEY)}",
    )


def _typed_columns(kind):
    """Return {field: "[name] TYPE"} of a row class, as SQL defines a column."""
    return {name: f"[{name}] {STORED[types[0]][0]}" for name, types in columns(kind).items()}


def ensure_table(connection, kind):
    """Create the table of a row class if it is missing; add columns that an older table lacks."""
    connection.execute(statements_of(kind).create)
    present = {row[1] for row in connection.execute(f"PRAGMA table_info({kind.TABLE})")}
    for name, typed in _typed_columns(kind).items():
        if name not in present:
            # another writer may have added the column; any other error shows in the next query
            with suppress(sqlite3.OperationalError):
                connection.execute(f"ALTER TABLE {kind.TABLE} ADD COLUMN {typed}")


def row_class(table):
    """Return the row class of a table; LabError for an unknown table name."""
    require_known(table, tables(), "table of the ledger")
    return tables()[table]


def check_types(row):
    """Raise LedgerError for a value of the wrong type, for NaN, or for a value SQLite cannot hold.

    None stands for an unknown value.
    """
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
    """Return whether a value has one of the types and can be stored without change."""
    kind = type(value)
    if kind not in types and not (kind is int and float in types):
        return False
    if kind is tuple:
        return all(_fits(number, (float,)) and abs(number) < float("inf") for number in value)
    if kind is str:
        # a text with half of a surrogate pair cannot be stored as UTF-8
        return value == value.encode("utf-8", "replace").decode("utf-8")
    if kind is int:
        return -(2**63) <= value < 2**63
    return value == value  # NaN does not equal itself


def _condition(names):
    """Return the SQL condition that each of these columns equals the parameter of the same name."""
    return " AND ".join(f"[{name}] IS :{name}" for name in names)


def _decode(value, kind):
    """Return a stored value as a Python value of type `kind`; None stays None."""
    if value is None or kind not in (tuple, bool):
        return value
    return bool(value) if kind is bool else tuple(json.loads(value))
