"""Where things lie, and writes that are whole or not there at all."""

import hashlib
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from labkit.errors import DataError, LabError


def root():
    """The workbook's folder (the one that holds `notebooks/`), whatever the current folder is."""
    return Path(os.environ.get("LABKIT_ROOT") or Path(__file__).resolve().parent.parent)


def notebooks() -> list[Path]:
    """The lessons of the course in order: the paths of `notebooks/NN_*.ipynb`. Raises LabError where there are none."""
    found = sorted((root() / "notebooks").glob("[0-9][0-9]_*.ipynb"))
    if not found:
        raise LabError(
            "There are no lessons here.",
            expected=f"notebooks such as {root() / 'notebooks' / '00_start_here.ipynb'}",
            found="labkit without the folder of the course: a wheel of labkit brings no lessons",
            fix="get the folder of the course (a clone of its repository) and say `make lab` in it",
        )
    return found


def artifacts() -> Path:
    """The folder for what runs produce; `LABKIT_ARTIFACTS` moves it. Made when missing."""
    folder = Path(os.environ.get("LABKIT_ARTIFACTS") or root() / "artifacts")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@contextmanager
def atomic(path: str | Path) -> Iterator[Path]:
    """Yield a temporary path beside `path`; on success it is fsynced and renamed over `path`.

    A kill at any moment leaves the old file or the new one, never a torn one.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        publish(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def publish(source, target):
    """Move the finished file `source` over `target` (same file system), durably and in one step."""
    with source.open("rb+") as file:
        os.fsync(file.fileno())
    source.chmod(0o644)  # mkstemp makes private files; what runs produce may be shared
    source.replace(target)
    folder = os.open(target.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def write_text(path: str | Path, text: str) -> None:
    """Write `text` as UTF-8, whole or not at all."""
    with atomic(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def sha256(path):
    """Hex digest of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def short_digest(text):
    """16 hex digits that stand for a text: the beginning of its sha256."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def require_published(path, wanted, *, fix, what=None):
    """Raise DataError unless the file has the sha256 that it was published with."""
    found = sha256(path) if path.is_file() else "no such file"
    if found != wanted:
        raise DataError(
            what or f"{path.name} is missing, or is not the published one.",
            expected=f"{path} with the sha256 {wanted}",
            found=found,
            fix=fix,
        )
