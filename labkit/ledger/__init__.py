"""The ledger: one SQLite file under artifacts/ that holds every measured row.

A row is durable when `add` returns: WAL with synchronous=FULL survives a kill of the writer.
Several notebooks may write at once; each waits its turn.
"""

import json
import sqlite3
import time
import types
import typing
from contextlib import contextmanager
from dataclasses import fields
from datetime import UTC, datetime
from pathlib import Path

from labkit.errors import LedgerError
from labkit.files import artifacts, atomic, root
from labkit.ledger import rows

BUSY_TIMEOUT_S = 60
SQL_TYPES = {str: "TEXT", int: "INTEGER", float: "REAL", bool: "INTEGER", tuple: "TEXT"}


def tables():
    """{table name: row class} of everything the ledger can hold."""
    return {kind.TABLE: kind for kind in vars(rows).values() if hasattr(kind, "TABLE")}


def now():
    """The time as rows hold it: UTC, ISO 8601, to the microsecond."""
    return datetime.now(UTC).isoformat(timespec="microseconds")


def default_path():
    """The ledger of this workbook."""
    return artifacts() / "ledger.sqlite"


def add(*new_rows, path=None):
    """Write the rows in one transaction, on disk when this returns; a row replaces an earlier one of the same key."""
    for row in new_rows:
        check_types(row)
    with connect(path) as connection:
        for row in new_rows:
            ensure_table(connection, type(row))
        connection.execute("BEGIN IMMEDIATE")
        for row in new_rows:
            values = {field.name: encode(getattr(row, field.name)) for field in fields(row)}
            same = " AND ".join(f'"{name}" IS ?' for name in row.KEY)  # UNIQUE does not see that None equals None
            connection.execute(f"DELETE FROM {row.TABLE} WHERE {same}", [values[name] for name in row.KEY])
            names, marks = ", ".join(f'"{name}"' for name in values), ", ".join("?" * len(values))
            connection.execute(f"INSERT INTO {row.TABLE} ({names}) VALUES ({marks})", list(values.values()))
        connection.execute("COMMIT")


def load(table="deployments", *, path=None):
    """All rows of one table as a pandas DataFrame, one typed column a field; empty when there are none.

    Numbers that are unknown are missing (NaN or <NA>), never 0.
    """
    import pandas as pd

    kind = row_class(table)
    names = [field.name for field in fields(kind)]
    return to_frame(pd.DataFrame(select(kind, {}, path), columns=names, dtype=object), kind)


def find(kind, *, path=None, **wanted):
    """The rows of one class whose fields equal `wanted`, oldest first, as a list of that class; no pandas needed."""
    shaped = [zip(fields(kind), row, strict=True) for row in select(kind, wanted, path)]
    return [kind(**{field.name: decode(value, field) for field, value in row}) for row in shaped]


def select(kind, wanted, path):
    """The stored values of the rows whose fields equal `wanted`, oldest first."""
    listed = ", ".join(f'"{field.name}"' for field in fields(kind))
    where = " AND ".join(f'"{name}" IS ?' for name in wanted) or "1"
    with connect(path) as connection:
        ensure_table(connection, kind)
        query = f"SELECT {listed} FROM {kind.TABLE} WHERE {where} ORDER BY rowid"
        return connection.execute(query, [encode(value) for value in wanted.values()]).fetchall()


def recorded(table="deployments", *, folder=None):
    """Rows measured on other, named hardware: `artifacts/recorded/*.json`.

    Never mixed with the reader's own rows: the columns `hardware`, `recorded_on` and `recorded_commit`
    say whose they are.
    """
    import pandas as pd

    kind, frames = row_class(table), []
    names = [field.name for field in fields(kind)]
    for path in sorted(Path(folder or root() / "artifacts" / "recorded").glob("*.json")):
        page = read_recorded(path)
        about = {"hardware": page["hardware"], "recorded_on": page["date"], "recorded_commit": page["commit"]}
        frame = pd.DataFrame(page["tables"].get(table, []), dtype=object).reindex(columns=names)
        frames.append(to_frame(frame, kind).assign(**about))
    empty = to_frame(pd.DataFrame(columns=names, dtype=object), kind)
    frames = [frame for frame in frames if len(frame)]
    frames = frames or [empty.assign(hardware=None, recorded_on=None, recorded_commit=None)]
    return pd.concat(frames, ignore_index=True)


def read_recorded(path):
    """One recorded file, checked to say what hardware, when and which source."""
    try:
        page = json.loads(Path(path).read_text(encoding="utf-8"))
    except ValueError as error:
        raise LedgerError(f"{path} is not a recorded result.", expected="JSON", found=str(error)) from error
    missing = {"hardware", "date", "commit", "versions", "tables"} - set(page if isinstance(page, dict) else ())
    if missing:
        raise LedgerError(
            f"{path} does not say where its numbers come from.",
            expected="the keys hardware, date, commit, versions, tables",
            found=f"no {', '.join(sorted(missing))}",
            fix="record it again with `labkit ledger record`",
        )
    return page


def export(folder=None, *, path=None):
    """Write each table as CSV and Parquet; both can be rebuilt from the ledger at any time.

    Returns the written paths.
    """
    folder, written = Path(folder or artifacts() / "export"), []
    for name in tables():
        frame = load(name, path=path)
        for ending, write in (("csv", frame.to_csv), ("parquet", frame.to_parquet)):
            target = folder / f"{name}.{ending}"
            with atomic(target) as temporary:
                write(temporary, index=False)
            written.append(target)
    return written


@contextmanager
def connect(path=None):
    """A connection in WAL mode with full synchronisation, closed at the end."""
    path = Path(path or default_path())
    try:
        connection = sqlite3.connect(path, timeout=BUSY_TIMEOUT_S, isolation_level=None)
        try:
            use_wal(connection)
            connection.execute("PRAGMA synchronous=FULL")
            yield connection
        finally:
            connection.close()
    except sqlite3.Error as error:
        raise LedgerError(
            f"The ledger {path} cannot be used.",
            expected="a SQLite file this process may write, on a disk with room",
            found=f"{type(error).__name__}: {error}",
            fix="free the disk or the file; if it is damaged, move it away and a new one is made",
        ) from error


def use_wal(connection):
    """Switch to WAL. Right after the file is made, SQLite answers 'locked' here without waiting its turn."""
    deadline = time.monotonic() + BUSY_TIMEOUT_S
    while True:
        try:
            mode = connection.execute("PRAGMA journal_mode=WAL").fetchone()[0]
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > deadline:
                raise
            time.sleep(0.01)
            continue
        if mode != "wal":
            raise sqlite3.OperationalError(f"journal mode is {mode}: this file system cannot hold a WAL ledger")
        return


def ensure_table(connection, kind):
    """Create the table of a row class, or add the columns it gained since."""
    columns = {field.name: sql_type(field) for field in fields(kind)}
    listed = ", ".join(f'"{name}" {type_}' for name, type_ in columns.items())
    key = ", ".join(kind.KEY)
    connection.execute(f"CREATE TABLE IF NOT EXISTS {kind.TABLE} ({listed}, UNIQUE ({key}))")
    there = {row[1] for row in connection.execute(f"PRAGMA table_info({kind.TABLE})")}
    for name in columns.keys() - there:
        try:
            connection.execute(f'ALTER TABLE {kind.TABLE} ADD COLUMN "{name}" {columns[name]}')
        except sqlite3.OperationalError as error:
            if "duplicate column" not in str(error):  # another writer was first
                raise


def row_class(table):
    """The row class of a table name."""
    if table not in tables():
        raise LedgerError(f"The ledger has no table {table!r}.", expected=", ".join(sorted(tables())), found=table)
    return tables()[table]


def base_type(field):
    """The type of a field without `| None`: str, int, float, bool or tuple."""
    hint = field.type
    if isinstance(hint, types.UnionType):
        hint = next(part for part in typing.get_args(hint) if part is not type(None))
    return typing.get_origin(hint) or hint


def sql_type(field):
    return SQL_TYPES[base_type(field)]


def check_types(row):
    """Refuse a value of another type, one SQLite cannot hold, and NaN: unknown is None."""
    for field in fields(row):
        value, wanted = getattr(row, field.name), base_type(field)
        optional = isinstance(field.type, types.UnionType)
        if not (value is None and optional) and not fits(value, wanted):
            raise LedgerError(
                f"{type(row).__name__}.{field.name} does not fit the ledger.",
                expected=f"{wanted.__name__}{' or None (unknown)' if optional else ''}, not NaN",
                found=f"{value!r} ({type(value).__name__})",
            )


def fits(value, wanted):
    """Whether a value can be stored as the type `wanted` and come back the same."""
    if type(value) is not wanted and not (wanted is float and type(value) is int):
        return False
    try:
        str(encode(value)).encode()
    except (TypeError, ValueError):  # not JSON, or text that is not Unicode
        return False
    return value == value and (type(value) is not int or -(2**63) <= value < 2**63)


def encode(value):
    return json.dumps(value, allow_nan=False) if isinstance(value, tuple) else value


def decode(value, field):
    """The Python value of a stored one; None stays None."""
    convert = {tuple: lambda text: tuple(json.loads(text)), bool: bool}.get(base_type(field))
    return convert(value) if convert and value is not None else value


def to_frame(frame, kind):
    """Give each column of an object frame its pandas type."""
    pandas_types = {int: "Int64", float: "float64", bool: "boolean", str: "object", tuple: "object"}
    for field in fields(kind):
        wanted, column = base_type(field), frame[field.name]
        if wanted is tuple:
            column = column.map(lambda text: tuple(json.loads(text)) if isinstance(text, str) else text)
        if wanted is bool:
            column = column.map(lambda value: None if value is None or value != value else bool(value))
        frame[field.name] = column.astype(pandas_types[wanted])
    return frame
