"""Errors that say what is wrong, what was expected, what was found, and what to do next."""

import errno
import os
import re

_STEPS = {  # where the operating system refuses something
    **dict.fromkeys(
        (errno.ENOSPC, errno.EDQUOT),
        "free some disk space; the same command then works, or goes on",
    ),
    errno.EFBIG: "raise the limit on the size of files (ulimit -f), or write elsewhere",
    **dict.fromkeys(
        (errno.EROFS, errno.EACCES, errno.EPERM),
        "make it readable and writable, or write elsewhere: LABKIT_ARTIFACTS=FOLDER moves what "
        "runs produce, "
        "LABKIT_MY_LESSONS=FOLDER your copies of the lessons",
    ),
    **dict.fromkeys(
        (errno.EEXIST, errno.ENOTDIR), "a file stands where a folder is needed: move it away"
    ),
    errno.EISDIR: "a folder stands where a file is needed: move it away",
    errno.ENOENT: "check the path",
    errno.EADDRINUSE: "choose another port, or none",
    errno.ENOLCK: "this file system, perhaps one of a network, cannot lock files: "
    "LABKIT_ARTIFACTS=FOLDER on a local "
    "disk moves what runs produce",
}


class LabError(Exception):
    """A problem that the reader can solve.

    what      what went wrong, in one sentence
    expected  what should have been there
    found     what was there instead
    fix       what to do next, best a command to copy
    """

    def __init__(self, what, *, expected=None, found=None, fix=None):
        super().__init__(what)
        self.what = what
        self.expected = expected
        self.found = found  # what there was in its place
        self.fix = fix

    def __str__(self):
        details = [("expected", self.expected), ("found", self.found), ("next", self.fix)]
        return "\n".join(
            [self.what, *(f"  {name}: {text}" for name, text in details if text is not None)]
        )


def require_known(name: object, known: list | tuple | set | dict, what: str) -> None:
    """Raise a LabError that lists the known names, unless `name` is one of them.

    known  the names that exist
    what   what such a name stands for, for the message: "network", for example
    """
    if name not in known:
        expected = " or ".join(map(str, known))
        raise LabError(
            f"There is no {what} {name!r}.",
            expected=expected,
            found=name,
            fix=f"choose another {what}",
        )


def brief(value: object) -> str:
    """Return a value as text for a message, cut to 60 characters.

    For an integer of several thousand digits, which Python refuses to print, the text says that it
    is such a number.
    """
    try:
        return f"{value!r:.60}"
    except ValueError:
        return "a number of thousands of digits"


def first_line(error: BaseException) -> str:
    """Return the type of an error and the first line of its message: "TimeoutError: too late".

    For an error without a message only the type is returned.
    """
    return f"{type(error).__name__}: {str(error).strip()}".splitlines()[0].removesuffix(": ")


class DataError(LabError):
    """A data file is missing, damaged or not the published one."""


class LedgerError(LabError):
    """The ledger cannot be opened, or a row does not fit its type."""


class LessonError(LabError):
    """A notebook calls the functions of `labkit.lesson` in a way that cannot work."""


class MeasureError(LabError):
    """A measurement is refused because its result would mean nothing."""


class Unavailable(LabError):
    """This machine does not have what is asked for: a device, an engine, a counter."""


def as_lab_error(error: OSError) -> LabError:
    """Return the `LabError` that explains an `OSError`: what happened, and what to do next."""
    step = _STEPS.get(error.errno or 0, "mend that, and give the same command again")
    return LabError(
        "The operating system refused.", found=str(error) or type(error).__name__, fix=step
    )


# what the operating system answers when a disk does not take a write
_REFUSED_WRITES = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS)
_TORCH_CANNOT_WRITE = re.compile("inline_container|iostream error|PytorchStreamWriter")


def disk_error(error: BaseException) -> OSError | None:
    """Return the `OSError` of the disk behind an error of a library; None for another cause.

    A disk refuses a write if it is full, read-only or broken, or if a file would be too large
    (`_REFUSED_WRITES`). Libraries hide that. safetensors writes the number of the `OSError` into
    its own text, `shutil.copytree` into a list of errors. torch raises a RuntimeError, which has
    the `OSError` as its context or does not have it at all.
    """
    numbers = re.findall(r"(?:os error |Errno )(\d+)", str(error))
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and cause.errno:
            numbers.append(cause.errno)
        cause = cause.__cause__ or cause.__context__
    for number in map(int, numbers):
        if number in _REFUSED_WRITES:
            return OSError(number, os.strerror(number))
    if isinstance(error, RuntimeError) and _TORCH_CANNOT_WRITE.search(str(error)):
        return OSError(
            errno.ENOSPC, "torch could not write the file to its end: the disk seems to be full"
        )
    return None
