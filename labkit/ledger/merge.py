"""Takes rows, scores and executed notebooks of another ledger into this one: once each, checked, whole or not at all.

A parcel is an artifacts folder, or a zip of one: its `ledger.sqlite`, and the executed notebooks that its attempts
name. It may come from a stranger. Nothing is written where it says, and only rows that fit the tables here are taken.
"""

import hashlib
import math
import re
import sqlite3
import tempfile
import zipfile
from contextlib import ExitStack, closing
from dataclasses import fields, replace
from pathlib import Path, PurePosixPath

from labkit.errors import LabError, LedgerError
from labkit.files import artifacts, atomic
from labkit.ledger._store import add, check_types, connect, edition_of, find, row_of, tables
from labkit.ledger.rows import EDITION, Attempt, Batch, EngineFile

LARGEST = 500 * 10**6  # bytes of one file of a parcel
LONGEST = 10**6  # bytes of one row
MOST_ROWS = 200_000
REPORTED = "reported/"  # how the run key of a reported row begins
NEVER_TAKEN = (Batch, EngineFile)  # what decides which batch goes on, and which machine code may be loaded
_PLAIN_TABLE = re.compile(r'CREATE TABLE "?\w+"? \((?:"\w+" (?:TEXT|INTEGER|REAL)|UNIQUE \([\w ,"]+\)|, )+\)')


def pack(path):
    """Write this ledger and its executed notebooks as a zip, which `merge` takes elsewhere; returns the path."""
    path = Path(path)
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


def merge(path, *, as_ours=None):
    """Take a parcel into this ledger; returns the rows that came: none where all of them were here.

    path     an artifacts folder, or a zip of one
    as_ours  for the parcel of a worker of this runner: changes a row so that it counts like a row of this machine.
             None: the rows are marked as reported, by the name of the parcel
    errors   LabError where something in it does not fit; then nothing was written
    """
    path = Path(path).resolve()
    try:
        with ExitStack() as opened:
            place = _opened(path, opened)
            rows = _rows(place)
            known = {_whose(row) for kind in _kinds() for row in find(kind)}
            change = as_ours or (lambda row: _as_reported(row, path.name))
            new = [(row, change(row)) for row in rows if _whose(row) not in known]
            new = [(theirs, ours) for theirs, ours in new if _whose(ours) not in known]
            notebooks = _notebooks(place, new)
    except (ValueError, TypeError, OSError, EOFError, RuntimeError, zipfile.BadZipFile, sqlite3.Error) as error:
        raise LabError(
            f"{path.name} is no parcel that this ledger can take; nothing of it was taken.",
            expected=f"an artifacts folder of the course in edition {EDITION}, or what `labkit ledger pack` wrote",
            found=str(error).splitlines()[0] if str(error) else type(error).__name__,
            fix="ask for it again, packed with the same version of the course",
        ) from error
    with ExitStack() as whole:
        for target, content in notebooks.items():
            whole.enter_context(atomic(target)).write_bytes(content)
        add(*(ours for _, ours in new))
    return [ours for _, ours in new]


def _opened(path, opened):
    """The folder of a parcel, or the root of a zip; both are read in the same way."""
    if path.is_dir():
        return path
    archive = opened.enter_context(zipfile.ZipFile(path))
    for name in archive.namelist():
        _require_inside(name)
    ledgers = [name for name in archive.namelist() if PurePosixPath(name).name == "ledger.sqlite"]
    if not ledgers:
        raise ValueError("it has no ledger.sqlite")
    return zipfile.Path(archive, min(ledgers, key=len).removesuffix("ledger.sqlite"))


def _require_inside(name):
    place = PurePosixPath(name)
    if place.is_absolute() or ".." in place.parts or "\\" in name:
        raise ValueError(f"it names a file outside itself: {name!r:.200}")


def _file(place, name):
    """A file of a parcel, which may not exist; ValueError where it would lie outside."""
    _require_inside(name)
    if isinstance(place, Path) and not (place / name).resolve().is_relative_to(place):
        raise ValueError(f"it names a file outside itself: {name!r:.200}")
    return place / name


def _content(file):
    """The bytes of a file, never more than may be."""
    with file.open("rb") as opened:
        content = opened.read(LARGEST + 1)
    if len(content) > LARGEST:
        raise ValueError(f"{file.name} has more than {LARGEST / 1e6:g} MB")
    return content


def _rows(place):
    """The rows of a parcel, from a copy of its ledger, each checked."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "ledger.sqlite"
        for name in (copy.name, f"{copy.name}-wal"):  # the second has what a process wrote that did not end well
            if (file := _file(place, name)).is_file():
                copy.with_name(name).write_bytes(_content(file))
        if not copy.exists():
            raise ValueError("it has no ledger.sqlite")
        if edition_of(copy) != EDITION:
            raise ValueError(f"its ledger is of edition {edition_of(copy)} of the course, here it is {EDITION}")
        with closing(sqlite3.connect(copy)) as stored:
            stored.execute("PRAGMA trusted_schema=OFF")
            stored.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LONGEST)
            _require_plain_tables(stored)
            if stored.execute("PRAGMA quick_check").fetchone() != ("ok",):
                raise ValueError("its ledger is damaged")
            return [row for kind in _kinds() for row in _rows_of(stored, kind)]


def _kinds():
    return [kind for kind in tables().values() if kind not in NEVER_TAKEN]


def _require_plain_tables(stored):
    """Refuse what a ledger never has: views, triggers, columns that are computed, tables that are not known here."""
    listed = stored.execute("SELECT type, name, sql FROM sqlite_master WHERE sql IS NOT NULL").fetchall()
    for kind, name, sql in listed:
        if kind != "table" or name not in tables() or not _PLAIN_TABLE.fullmatch(sql):
            raise ValueError(f"its ledger has a {kind} {name!r:.200} that a ledger of this course does not have")


def _rows_of(stored, kind):
    """The rows of one table that are not themselves reported by others."""
    if not stored.execute("SELECT 1 FROM sqlite_master WHERE name = ?", [kind.TABLE]).fetchone():
        return []
    found = stored.execute(f"SELECT * FROM {kind.TABLE} LIMIT {MOST_ROWS + 1}")
    names = [column[0] for column in found.description]
    if unknown := sorted(set(names) - {field.name for field in fields(kind)}):
        raise ValueError(f"its table {kind.TABLE} has the column {unknown[0]!r}, which is not known here")
    rows = [_checked(row_of(kind, dict(zip(names, values, strict=True)))) for values in found]
    if len(rows) > MOST_ROWS:
        raise ValueError(f"its table {kind.TABLE} has more than {MOST_ROWS:,} rows")
    return [row for row in rows if not _whose(row).startswith(REPORTED)]


def _checked(row):
    """The row, if its values fit its class and could have been measured."""
    try:
        check_types(row)
    except LedgerError as error:
        raise ValueError(f"{error.what} It is {error.found:.200}".strip()) from error
    for name, value in vars(row).items():
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError(f"{type(row).__name__}.{name} is {value}, not a finite number")
    figures = [getattr(row, name) for name in getattr(row, "FIGURES", ())]
    if None in figures and any(value is not None for value in figures):
        raise ValueError(f"a row of {row.TABLE} has some of its figures only")
    return row


def _whose(row):
    """The run that a row belongs to; a machine belongs to itself."""
    return getattr(row, "run_key", None) or row.machine_key or ""


def _as_reported(row, source):
    """The row under a key that none of ours can have, with the parcel's name, its texts without what does not print."""
    changes = {name: _plain(value) for name, value in vars(row).items() if isinstance(value, str)}
    for key in ("run_key", "batch_key"):
        if hasattr(row, key):
            changes[key] = REPORTED + changes.get(key, "")
    if hasattr(row, "reported_by"):
        changes["reported_by"] = _plain(source)
    if changes.get("output"):
        changes["output"] = f"reported/{hashlib.sha256(changes['run_key'].encode()).hexdigest()[:16]}.ipynb"
    return replace(row, **changes)


def _plain(text):
    """Text on one line, without signs that a terminal or a page would obey."""
    return " ".join("".join(sign if sign.isprintable() else " " for sign in text).split())


def _notebooks(place, new):
    """{where an executed notebook shall lie: its bytes}, of the attempts whose notebook the parcel has."""
    outputs = [(theirs.output, ours.output) for theirs, ours in new if isinstance(ours, Attempt) and ours.output]
    files = [(_file(place, theirs), artifacts() / ours) for theirs, ours in outputs]
    return {target: _content(file) for file, target in files if file.is_file()}
