"""The folders of the workbook, and writes of files that are whole or not there at all."""

import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from labkit.errors import DataError, LabError, disk_error, explained


def root():
    """Return the workbook's folder, which holds `notebooks/`, whatever the current folder is.

    The environment variable `LABKIT_ROOT` names another folder.
    """
    return Path(os.environ.get("LABKIT_ROOT") or Path(__file__).resolve().parent.parent)


def notebooks() -> list[Path]:
    """Return the paths of the course's lessons, `notebooks/NN_*.ipynb`, in order.

    Raises LabError where there are none.
    """
    paths = sorted((root() / "notebooks").glob("[0-9][0-9]_*.ipynb"))
    if not paths:
        raise LabError(
            "There are no lessons here.",
            expected=f"notebooks such as {root() / 'notebooks' / '00_start_here.ipynb'}",
            found="labkit without the folder of the course: a wheel of labkit brings no lessons",
            fix="get the folder of the course (a clone of its repository) and say `make lab` in it",
        )
    return paths


def deeper_notebooks() -> list[Path]:
    """Return the paths of the tours and proofs, `notebooks/deeper/*.ipynb`, sorted by name.

    The list may be empty.
    """
    return sorted((root() / "notebooks" / "deeper").glob("*.ipynb"))


def my_lessons() -> Path:
    """Return the folder of the reader's own copies of lessons and of `mine.py`; it may be missing.

    The environment variable `LABKIT_MY_LESSONS` names another folder.
    """
    return Path(os.environ.get("LABKIT_MY_LESSONS") or root() / "my-lessons").absolute()


def artifacts() -> Path:
    """Return the folder for what runs produce, and make the folder if it is missing.

    The environment variable `LABKIT_ARTIFACTS` names another folder.
    """
    folder = Path(os.environ.get("LABKIT_ARTIFACTS") or root() / "artifacts")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:  # in a lesson, too, it is said in words
        raise explained(error) from error
    return folder


def require_other_file(source: str | Path, target: str | Path) -> None:
    """Raise LabError where `target` is the same file as `source`: writing would replace the source.

    Links are followed.

    source  the file that the result is made of
    target  the file that is about to be written
    """
    source, target = Path(source), Path(target)
    if source.exists() and target.exists() and source.samefile(target):
        found = str(target)
        if source.resolve() != target:
            found = f"{target}, which is the same file"
        raise LabError(
            "The result would replace the file that it is made of.",
            expected=f"another file than {source}",
            found=found,
            fix="write to another name",
        )


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
        with _disk_errors_named(path):
            yield temporary
            publish(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def atomic_together(*paths: str | Path) -> Iterator[list[Path]]:
    """Yield a temporary path for each of several files that belong together.

    The files are renamed to their own paths when all are written. An error before that leaves every
    old file as it was.
    """
    with ExitStack() as publications:
        yield [publications.enter_context(atomic(path)) for path in paths]


@contextmanager
def draft(path: str | Path) -> Iterator[Path]:
    """Yield a path of the same name in a temporary folder beside `path`: the file is checked there.

    On success the new file replaces `path`. After an error the new file is deleted, and `path` is
    untouched. Unlike the temporary name of `atomic`, this name may be shown, and has the ending
    that readers of the file want. Files that are written beside the new one, such as the weights
    that an ONNX file names, are published with it.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(
        dir=path.parent, prefix=f".{path.name}.", suffix=".tmp"
    ) as folder:
        temporary = Path(folder) / path.name
        with _disk_errors_named(path):
            yield temporary
            for companion in sorted(Path(folder).iterdir()):
                if companion != temporary:
                    publish(companion, path.parent / companion.name)
            publish(temporary, path)


@contextmanager
def atomic_folder(path: str | Path) -> Iterator[Path]:
    """Yield an empty temporary folder beside `path`; on success it takes the place of `path`.

    An earlier folder stays as it is until the new one is whole. It is then moved aside, and removed
    when the new one stands in its place. Raises LabError for a folder in which this process works.
    """
    path = Path(path).resolve()  # a link stays, and leads to the new folder
    if Path.cwd().is_relative_to(path):
        raise LabError(
            "The current folder would be replaced.",
            found=str(path),
            fix="go to another folder: cd ..",
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(
        dir=path.parent, prefix=f".{path.name}.", suffix=".tmp"
    ) as outer:
        made, earlier = Path(outer) / "new", Path(outer) / "earlier"
        made.mkdir()
        with _disk_errors_named(path):
            yield made
            _sync(made)
        if path.exists():
            path.rename(earlier)
        try:
            made.rename(path)
        except BaseException:
            if earlier.exists():
                earlier.rename(path)
            raise


def _sync(folder):
    """Flush all files of a folder to the disk (fsync)."""
    for file in folder.rglob("*"):
        if file.is_file():
            with file.open("rb+") as opened:
                os.fsync(opened.fileno())


@contextmanager
def _disk_errors_named(path):
    """Raise an `OSError` that names `path` where the disk refuses a write inside the context.

    This replaces the error of a library. An error with another cause, or one that names its file
    already, is raised unchanged.
    """
    try:
        yield
    except Exception as error:
        refused = None if isinstance(error, LabError) else disk_error(error)
        if refused is None or (isinstance(error, OSError) and error.filename):
            raise
        raise OSError(refused.errno, refused.strerror, str(path)) from error


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


def write_together(texts: dict[Path, str]) -> None:
    """Write {path: text} as UTF-8, all of them or none."""
    with atomic_together(*texts) as temporaries:
        for temporary, text in zip(temporaries, texts.values(), strict=True):
            temporary.write_text(text, encoding="utf-8")


def sha256(path):
    """Return the sha256 of a file's bytes as hex digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def short_digest(text):
    """Return 16 hex digits that identify a text: the beginning of its sha256."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def copy(source, target):
    """Copy a file, whole or not at all."""
    with atomic(target) as temporary:
        shutil.copyfile(source, temporary)


def require_published(path, expected_sha256, *, fix, problem=None):
    """Raise DataError unless the file `path` has the sha256 with which it was published.

    fix      what the user can do, for the message
    problem  the first sentence of the message; None: a sentence that fits any file
    """
    found = sha256(path) if path.is_file() else "no such file"
    if found != expected_sha256:
        raise DataError(
            problem or f"{path.name} is missing, or is not the published one.",
            expected=f"{path} with the sha256 {expected_sha256}",
            found=found,
            fix=fix,
        )
