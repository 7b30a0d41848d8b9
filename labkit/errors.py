"""Errors that say what is wrong, what was expected, what was found, and what to do next."""

import errno

_STEPS = {  # where the operating system refuses something
    errno.ENOSPC: "free some disk space; the same command then works, or goes on",
    **dict.fromkeys(
        (errno.EROFS, errno.EACCES, errno.EPERM),
        "make it readable and writable, or write elsewhere: LABKIT_ARTIFACTS=FOLDER moves what runs produce",
    ),
    **dict.fromkeys((errno.EEXIST, errno.ENOTDIR), "a file stands where a folder is needed: move it away"),
    errno.EISDIR: "a folder stands where a file is needed: move it away",
    errno.ENOENT: "check the path",
    errno.EADDRINUSE: "choose another port, or none",
}


class LabError(Exception):
    """A problem the reader can act on.

    what      one sentence: what went wrong
    expected  what should have been there
    found     what was there instead
    fix       the next step, best a command to copy
    """

    def __init__(self, what, *, expected=None, found=None, fix=None):
        super().__init__(what)
        self.what, self.expected, self.found, self.fix = what, expected, found, fix

    def __str__(self):
        parts = [("expected", self.expected), ("found", self.found), ("next", self.fix)]
        return "\n".join([self.what, *(f"  {name}: {text}" for name, text in parts if text is not None)])


def require_known(name: object, known: list | tuple | set | dict, what: str) -> None:
    """Raise a LabError that lists what is known unless `name` is among it; `what` it is, such as "network"."""
    if name not in known:
        expected = " or ".join(map(str, known))
        raise LabError(f"There is no {what} {name!r}.", expected=expected, found=name, fix=f"choose another {what}")


class DataError(LabError):
    """A data file is missing, damaged or not the published one."""


class LedgerError(LabError):
    """The ledger cannot be opened, or a row does not fit its type."""


class LessonError(LabError):
    """A notebook uses the teaching words in a way that cannot work."""


class MeasureError(LabError):
    """A measurement that would not mean anything is refused."""


class Unavailable(LabError):
    """Something this machine does not have: a device, an engine, a counter."""


def explained(error: OSError) -> LabError:
    """An `OSError` as a `LabError` that names the file and says what to do: for the command line."""
    step = _STEPS.get(error.errno or 0, "mend that, and give the same command again")
    return LabError("The operating system refused.", found=str(error) or type(error).__name__, fix=step)
