"""Takes rows, scores and executed notebooks of another ledger into this one: once each, checked, whole or not at all.

A parcel is an artifacts folder, or a zip of one: its `ledger.sqlite`, and the executed notebooks that its attempts
name. It may come from a stranger. Nothing is written where it says, and only rows that fit the tables here are taken.
"""

import math
import re
import sqlite3
import tempfile
import zipfile
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from labkit.errors import LabError
from labkit.files import artifacts, atomic, short_digest
from labkit.ledger._store import add, check_types, columns, connect, edition_of, find, row_of, tables
from labkit.ledger.rows import EDITION, Attempt, Batch, EngineFile

LARGEST = 500 * 10**6  # bytes of one file of a parcel
LONGEST = 10**6  # bytes of one row
MOST_ROWS = 200_000
REPORTED = "reported/"  # how the run key of a reported row begins
NEVER_TAKEN = (Batch, EngineFile)  # what decides which batch goes on, and which machine code may be loaded
_PLAIN_TABLE = re.compile(r'CREATE TABLE "?\w+"? \((?:"\w+" (?:TEXT|INTEGER|REAL)|UNIQUE \([\w ,"]+\)|, )+\)')


def pack(path: Path) -> Path:
    """Write this ledger and its executed notebooks as a zip, which `merge` takes elsewhere; returns the path."""
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


def merge(path: Path, *, as_ours: str | None = None) -> Any:
    """Take a parcel into this ledger; returns the rows that came: none where all of them were here.

    path     an artifacts folder, or a zip of one
    as_ours  for the parcel of a worker of this runner, whose rows count like rows of this machine: {field: value} to
             change in those that have the field. None: the rows are marked as reported, by the name of the parcel
    errors   LabError where something in it does not fit; then nothing was written
    """
    path = path.resolve()
    known = {_whose(row) for kind in _kinds() for row in find(kind)}
    try:
        with ExitStack() as opened:
            place = _opened(path, opened)
            pairs = [(row, _changed(row, as_ours or _as_reported(row, path.name))) for row in _rows(place)]
            new = [(theirs, ours) for theirs, ours in pairs if known.isdisjoint((_whose(theirs), _whose(ours)))]
            notebooks = _notebooks(place, new)
    except Exception as error:  # what a stranger made can fail in any way
        raise LabError(
            f"{path.name} is no parcel that this ledger can take; nothing of it was taken.",
            expected=f"an artifacts folder of the course in edition {EDITION}, or what `labkit ledger pack` wrote",
            found=f"{type(error).__name__}: {' '.join(str(error).split())[:300]}",
            fix="ask for it again, packed with the same version of the course",
        ) from error
    with ExitStack() as whole:
        for target, content in notebooks.items():
            whole.enter_context(atomic(target)).write_bytes(content)
        add(*(ours for _, ours in new))
    return [ours for _, ours in new]


def _opened(path, opened):
    """The folder of a parcel, or of what a zip holds; both are read in the same way."""
    if path.is_dir():
        return path
    archive = opened.enter_context(zipfile.ZipFile(path))
    ledgers = [name for name in archive.namelist() if name.rpartition("/")[2] == "ledger.sqlite"]
    if not ledgers:
        raise ValueError("it has no ledger.sqlite")
    return zipfile.Path(archive, min(ledgers, key=len).removesuffix("ledger.sqlite"))


def _content(place, name):
    """The bytes of a file of a parcel, or None where it is not there; ValueError for a file that no parcel may have."""
    file = place / name
    if isinstance(file, Path) and not file.resolve().is_relative_to(place):
        raise ValueError(f"it names a file outside itself: {name!r:.200}")
    if not file.is_file():
        return None
    with file.open("rb") as opened:
        content = opened.read(LARGEST + 1)
    if len(content) > LARGEST:
        raise ValueError(f"{name} has more than {LARGEST / 1e6:g} MB")
    return content


def _rows(place):
    """The rows of a parcel, from a copy of its ledger, each checked."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "ledger.sqlite"
        for name in (copy.name, f"{copy.name}-wal"):  # the second has what a process wrote that did not end well
            copy.with_name(name).write_bytes(_content(place, name) or b"")
        if edition_of(copy) != EDITION:
            raise ValueError(f"its ledger is of edition {edition_of(copy)} of the course, here it is {EDITION}")
        with closing(sqlite3.connect(copy)) as stored:
            stored.execute("PRAGMA trusted_schema=OFF")
            stored.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LONGEST)
            there = _plain_tables(stored)
            if stored.execute("PRAGMA quick_check").fetchone() != ("ok",):
                raise ValueError("its ledger is damaged")
            return [row for kind in _kinds() if kind.TABLE in there for row in _rows_of(stored, kind)]


def _kinds():
    return [kind for kind in tables().values() if kind not in NEVER_TAKEN]


def _plain_tables(stored):
    """The names of its tables; what a ledger never has is refused: views, triggers, computed columns, other tables."""
    listed = stored.execute("SELECT type, name, sql FROM sqlite_master WHERE sql IS NOT NULL").fetchall()
    for kind, name, sql in listed:
        if kind != "table" or name not in tables() or not _PLAIN_TABLE.fullmatch(sql):
            raise ValueError(f"its ledger has a {kind} {name!r:.200} that a ledger of this course does not have")
    return {name for _, name, _ in listed}


def _rows_of(stored, kind):
    """The rows of one table that are not themselves reported by others."""
    found = stored.execute(f"SELECT * FROM {kind.TABLE} LIMIT {MOST_ROWS + 1}")
    names = [column[0] for column in found.description]
    if unknown := set(names) - columns(kind).keys():
        raise ValueError(f"its table {kind.TABLE} has the column {min(unknown)!r}, which is not known here")
    rows = [row_of(kind, dict(zip(names, values, strict=True))) for values in found]
    if len(rows) > MOST_ROWS:
        raise ValueError(f"its table {kind.TABLE} has more than {MOST_ROWS:,} rows")
    for row in rows:
        _require_possible(row)
    return [row for row in rows if not _whose(row).startswith(REPORTED)]


def _require_possible(row):
    """Refuse values that do not fit the class of the row, or that nobody can have measured."""
    check_types(row)
    for name, value in vars(row).items():
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError(f"{type(row).__name__}.{name} is {value}, not a finite number")
    if len({getattr(row, name) is None for name in getattr(row, "FIGURES", ())}) > 1:
        raise ValueError(f"a row of {row.TABLE} has only some of its figures")


def _whose(row):
    """The run that a row belongs to; a machine belongs to itself."""
    return getattr(row, "run_key", None) or row.machine_key or ""


def _changed(row, changes):
    """The row with those changes whose field it has."""
    return replace(row, **{name: value for name, value in changes.items() if hasattr(row, name)})


def _as_reported(row, source):
    """{field: value} to change, so that a row has a key that none of ours can have, and texts that can be printed."""
    changes = {name: _plain(value) for name, value in vars(row).items() if isinstance(value, str)}
    changes |= {key: REPORTED + changes[key] for key in ("run_key", "batch_key") if key in changes}
    if changes.get("output"):
        changes["output"] = f"reported/{short_digest(changes['run_key'])}.ipynb"
    return changes | {"reported_by": _plain(source)}


def _plain(text):
    """Text on one line, without signs that a terminal or a page would obey."""
    return " ".join("".join(sign if sign.isprintable() else " " for sign in text).split())


def _notebooks(place, new):
    """{where an executed notebook shall lie: its bytes}, of the attempts whose notebook the parcel has."""
    found = {}
    for theirs, ours in new:
        content = _content(place, theirs.output) if isinstance(ours, Attempt) and ours.output else None
        if content is not None:
            found[artifacts() / ours.output] = content
    return found
