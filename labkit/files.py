"""Find the folders of the workbook, and write files so that none is ever half written."""

import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from labkit.errors import DataError, LabError, as_lab_error, disk_error


def root():
    """Return the workbook's folder, which holds `notebooks/`. The current folder does not matter.

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
    """Return the paths of the notebooks beside the lessons, `notebooks/deeper/*.ipynb`, sorted.

    They hold longer tours and proofs. The list may be empty.
    """
    return sorted((root() / "notebooks" / "deeper").glob("*.ipynb"))


def my_lessons() -> Path:
    """Return the folder of the reader's own copies of lessons and of `mine.py`.

    It need not exist. The environment variable `LABKIT_MY_LESSONS` names another folder.
    """
    return Path(os.environ.get("LABKIT_MY_LESSONS") or root() / "my-lessons").absolute()


def artifacts() -> Path:
    """Return the folder for what runs produce; it is made if it is missing.

    The environment variable `LABKIT_ARTIFACTS` names another folder.
    """
    folder = Path(os.environ.get("LABKIT_ARTIFACTS") or root() / "artifacts")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:  # in a lesson, too, it is said in words
        raise as_lab_error(error) from error
    return folder


def require_other_file(source: str | Path, target: str | Path) -> None:
    """Raise LabError if `target` is the same file as `source`, which writing would then replace.

    Links are followed.

    source  the file from which the result is made
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
    """Write a file in one step: yield a temporary path, which replaces `path` at the end.

    The `with` block writes to the temporary path, which lies beside `path`. After an error in the
    block `path` is unchanged. If the process is killed at any moment, `path` is the old file or the
    new one, never a part of one.
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
    """Write several files that belong together: yield a list of temporary paths, one for each.

    At the end of the `with` block the files replace those at `paths`. After an error in the block
    all old files are as they were.
    """
    with ExitStack() as publications:
        yield [publications.enter_context(atomic(path)) for path in paths]


@contextmanager
def draft(path: str | Path) -> Iterator[Path]:
    """Write and check a file in a temporary folder beside `path`, and then replace `path`.

    Yields a path in this folder that has the name of `path`.

    At the end of the `with` block the new file replaces `path`. After an error the new file is
    deleted and `path` is unchanged. Other files in the temporary folder, such as the weights that
    an ONNX file names, are moved to the folder of `path`.

    Use this instead of `atomic` where the name matters: this one has the ending that readers of the
    file expect, and may appear in a message.
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
    """Write a folder in one step: yield a temporary folder, which replaces `path` at the end.

    The temporary folder is empty and lies beside `path`; it is deleted after an error in the `with`
    block. An existing folder at `path` stays as it is until the new one is complete. Then it is
    moved aside, the new one takes its place, and the old one is deleted.

    Raises  LabError if the current folder is `path` or lies in it
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
    """Flush all files below a folder to the disk (fsync)."""
    for file in folder.rglob("*"):
        if file.is_file():
            with file.open("rb+") as opened:
                os.fsync(opened.fileno())


@contextmanager
def _disk_errors_named(path):
    """Raise an `OSError` with the name of `path` if the disk refuses a write in the `with` block.

    It replaces the error that a library raised for this reason. Two errors are raised unchanged:
    one with another cause, and one that names its file already.
    """
    try:
        yield
    except Exception as error:
        refused = None if isinstance(error, LabError) else disk_error(error)
        if refused is None or (isinstance(error, OSError) and error.filename):
            raise
        raise OSError(refused.errno, refused.strerror, str(path)) from error


def publish(source, target):
    """Move the complete file `source` to `target` in one step, which replaces a file there.

    Both have to be on the same file system. The file is on the disk when this returns.
    """
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
    """Write a text as UTF-8; `path` is never half written."""
    with atomic(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_together(texts: dict[Path, str]) -> None:
    """Write several texts as UTF-8. After an error in writing one, all old files are as they were.

    texts  {path: text}
    """
    with atomic_together(*texts) as temporaries:
        for temporary, text in zip(temporaries, texts.values(), strict=True):
            temporary.write_text(text, encoding="utf-8")


def sha256(path):
    """Return the SHA-256 of a file's bytes as hex digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def short_digest(text):
    """Return the first 16 hex digits of the SHA-256 of a text, which identify the text."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def copy(source, target):
    """Copy a file; `target` is never half written."""
    with atomic(target) as temporary:
        shutil.copyfile(source, temporary)


def require_published(path, expected_sha256, *, fix, problem=None):
    """Raise DataError unless a file has the SHA-256 with which it was published.

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
