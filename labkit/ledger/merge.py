"""Merge rows, scores and executed notebooks of another ledger into this one: all or nothing.

A parcel is an artifacts folder, or a zip of such a folder. It holds `ledger.sqlite` and the
executed notebooks that are named in the table of attempts. Rows that this ledger already has are
not taken again. A parcel may come from a stranger. Therefore its rows are checked against the row
classes of this ledger, and no path in it decides where a file is written.
"""

import math
import sqlite3
import tempfile
import zipfile
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from labkit.errors import LabError
from labkit.files import artifacts, atomic, atomic_together, require_other_file, short_digest
from labkit.ledger._store import (
    add,
    check_types,
    columns,
    connect,
    edition_of,
    ensure_table,
    find,
    row_of,
    statements_of,
    tables,
)
from labkit.ledger.rows import EDITION, Attempt, Batch

LARGEST = 500 * 10**6  # bytes of one file of a parcel
LONGEST = 10**6  # bytes of one row
MOST_ROWS = 200_000
REPORTED = "reported/"  # how the run key of a reported row begins
NEVER_TAKEN = (Batch,)  # a foreign batch would be continued by the runner of this machine
# tables that ledgers of earlier versions have; their rows are not read
FORMER_TABLES = {"engine_files", "ceilings"}


def pack(path: Path) -> Path:
    """Write a parcel: a zip of this ledger and its executed notebooks. Returns its path.

    Notebooks that came from others by `merge` are left out.
    """
    require_other_file(artifacts() / "ledger.sqlite", path)
    with tempfile.TemporaryDirectory() as folder, atomic(path) as temporary:
        copy = Path(folder) / "ledger.sqlite"
        with connect() as stored:
            stored.execute("VACUUM INTO ?", [str(copy)])
        outputs = {row.output for row in find(Attempt, reported_by=None) if row.output}
        with zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.write(copy, copy.name)
            for output in sorted(outputs):
                if (artifacts() / output).is_file():
                    archive.write(artifacts() / output, output)
    return path


def merge(path: Path, *, as_ours: dict | None = None) -> Any:
    """Merge a parcel into this ledger. Returns a list of the rows that are new here.

    path     an artifacts folder, or a zip of one
    as_ours  None: the new rows are marked as reported by others, with the name of the parcel. For
             the parcel of a worker of the reader's own cluster: {field: value} that its rows get,
             where they have the field; they then count as rows of this machine
    Raises   LabError where something in the parcel is not as it should be; then nothing was written
    """
    path = path.resolve()
    present = {_run_key_of(row) for kind in _accepted_classes() for row in find(kind)}
    try:
        with ExitStack() as stack:
            folder = _open_parcel(path, stack)
            new = []  # (row of the parcel, row as it stands here)
            for theirs in _rows(folder):
                ours = _with_changes(theirs, as_ours or _as_reported(theirs, path.name))
                if present.isdisjoint((_run_key_of(theirs), _run_key_of(ours))):
                    new.append((theirs, ours))
            notebooks = _notebooks(folder, new)
    except Exception as error:  # what a stranger made can fail in any way
        raise LabError(
            f"{path.name} is no parcel that this ledger can take; nothing of it was taken.",
            expected=f"an artifacts folder of the course in edition {EDITION}, or what `labkit "
            "ledger pack` wrote",
            found=f"{type(error).__name__}: {' '.join(str(error).split())[:300]}",
            fix="ask for it again, packed with the same version of the course",
        ) from error
    rows = [ours for _, ours in new]
    _write(notebooks, rows)
    return rows


def _write(notebooks, rows):
    """Write executed notebooks, then the rows that name them: all or nothing.

    notebooks  {path: bytes}
    """
    new_paths = [path for path in notebooks if not path.exists()]
    with atomic_together(*notebooks) as temporaries:
        for temporary, content in zip(temporaries, notebooks.values(), strict=True):
            temporary.write_bytes(content)
    try:
        add(*rows)
    except BaseException:
        for path in new_paths:
            path.unlink(missing_ok=True)
        raise


def _open_parcel(path, stack):
    """Return the folder of a parcel: a `Path`, or a `zipfile.Path` that is read in the same way.

    stack  the ExitStack that closes the zip
    """
    if path.is_dir():
        return path
    archive = stack.enter_context(zipfile.ZipFile(path))
    ledgers = [name for name in archive.namelist() if name.rpartition("/")[2] == "ledger.sqlite"]
    if not ledgers:
        raise ValueError("it has no ledger.sqlite")
    return zipfile.Path(archive, min(ledgers, key=len).removesuffix("ledger.sqlite"))


def _bytes_of(folder, name):
    """Return the bytes of a file of a parcel, or None where the file is missing.

    Raises  ValueError for a path that leads out of the parcel, and for a file that is too large
    """
    file = folder / name
    if isinstance(file, Path) and not file.resolve().is_relative_to(folder):
        raise ValueError(f"it names a file outside itself: {name!r:.200}")
    if not file.is_file():
        return None
    with file.open("rb") as opened:
        content = opened.read(LARGEST + 1)
    if len(content) > LARGEST:
        raise ValueError(f"{name} has more than {LARGEST / 1e6:g} MB")
    return content


def _rows(folder):
    """Return the checked rows of a parcel, read from a copy of its ledger.

    folder  the folder that `_open_parcel` returned
    Raises  ValueError where the ledger is damaged, of another edition, or holds something that a
            ledger of this course does not have
    """
    with tempfile.TemporaryDirectory() as temporary:
        copy = Path(temporary) / "ledger.sqlite"
        # the -wal file holds the last rows of a process that was killed
        for name in (copy.name, f"{copy.name}-wal"):
            copy.with_name(name).write_bytes(_bytes_of(folder, name) or b"")
        with closing(sqlite3.connect(copy)) as stored:
            stored.execute("PRAGMA trusted_schema=OFF")
            stored.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LONGEST)
            if edition_of(stored) != EDITION:
                raise ValueError(
                    f"its ledger is of edition {edition_of(stored)} of the course, "
                    f"here it is {EDITION}"
                )
            _require_plain_tables(stored)
            if stored.execute("PRAGMA quick_check").fetchone() != ("ok",):
                raise ValueError("its ledger is damaged")
            return [row for kind in _accepted_classes() for row in _rows_of(stored, kind)]


def _accepted_classes():
    """Return the row classes that a parcel may bring."""
    return [kind for kind in tables().values() if kind not in NEVER_TAKEN]


def _require_plain_tables(stored):
    """Raise ValueError unless a ledger holds plain tables with known names, and nothing else.

    Views, triggers and virtual tables would let SQL of a stranger run here.

    stored  SQLite connection to the ledger of a parcel
    """
    allowed = FORMER_TABLES | tables().keys()
    for kind, name, sql in stored.execute(
        "SELECT type, name, sql FROM sqlite_master WHERE sql IS NOT NULL"
    ):
        if kind != "table" or name not in allowed or not sql.startswith("CREATE TABLE "):
            raise ValueError(
                f"its ledger has a {kind} {name!r:.200} that a ledger of this course does not have"
            )


def _rows_of(stored, kind):
    """Return the rows of one table of a parcel, each checked by `_require_possible`.

    Rows that the parcel's owner had merged from somebody else are left out.

    stored  SQLite connection to the copy of the parcel's ledger
    kind    row class of the table
    Raises  ValueError for an unknown column and for too many rows
    """
    ensure_table(stored, kind)  # a ledger of an earlier version lacks columns
    for _, name, *_, hidden in stored.execute(f"PRAGMA table_xinfo({kind.TABLE})"):
        if name not in columns(kind) or hidden:  # hidden: computed from other columns
            raise ValueError(
                f"its table {kind.TABLE} has the column {name!r:.200}, which is not known here"
            )
    stored.row_factory = sqlite3.Row
    cursor = stored.execute(f"{statements_of(kind).select} LIMIT {MOST_ROWS + 1}")
    rows = [row_of(kind, dict(values)) for values in cursor]
    if len(rows) > MOST_ROWS:
        raise ValueError(f"its table {kind.TABLE} has more than {MOST_ROWS:,} rows")
    for row in rows:
        _require_possible(row)
    return [row for row in rows if not _run_key_of(row).startswith(REPORTED)]


def _require_possible(row):
    """Raise an error for a row of a parcel that labkit cannot have written.

    Raises  LedgerError for a value of the wrong type; ValueError for an infinite number, and for a
            row that has only some of the numbers that belong together (`FIGURES` of its class)
    """
    check_types(row)
    for name, value in vars(row).items():
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError(f"{type(row).__name__}.{name} is {value}, not a finite number")
    if len({getattr(row, name) is None for name in getattr(row, "FIGURES", ())}) > 1:
        raise ValueError(f"a row of {row.TABLE} has only some of its figures")


def _run_key_of(row):
    """Return the key of the run that a row belongs to; a `Machine` row gives the machine's key."""
    return getattr(row, "run_key", None) or row.machine_key or ""


def _with_changes(row, changes):
    """Return a copy of a row with other values in some fields.

    changes  {field: new value}; fields that the row does not have are ignored
    """
    possible = {name: value for name, value in changes.items() if hasattr(row, name)}
    return replace(row, **possible)


def _as_reported(row, source):
    """Return {field: new value}, the changes that mark a row as reported by somebody else.

    The new run key begins with "reported/", as no key of a run of this ledger does. All texts are
    made safe to print.

    source  the name of the parcel, for the field `reported_by`
    """
    changes = {
        name: _printable(value) for name, value in vars(row).items() if isinstance(value, str)
    }
    changes |= {key: REPORTED + changes[key] for key in ("run_key", "batch_key") if key in changes}
    if changes.get("output"):
        changes["output"] = f"reported/{short_digest(changes['run_key'])}.ipynb"
    return changes | {"reported_by": _printable(source)}


def _printable(text):
    """Return text on one line, with each character that is not printable replaced by a space.

    Control characters could change what a terminal or a page shows.
    """
    printable = "".join(sign if sign.isprintable() else " " for sign in text)
    return " ".join(printable.split())


def _notebooks(folder, new):
    """Return {path in our artifacts: bytes} of the executed notebooks that come with new attempts.

    folder  the folder that `_open_parcel` returned
    new     list of (row as in the parcel, row as stored here)
    """
    notebooks = {}
    for theirs, ours in new:
        if not isinstance(ours, Attempt) or not ours.output:
            continue
        content = _bytes_of(folder, theirs.output)
        if content is not None:
            notebooks[artifacts() / ours.output] = content
    return notebooks
