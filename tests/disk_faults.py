"""Disks that refuse, for tests: full, read-only, and one that fails at the moment a finished
file is published.
"""

import errno
import os
import resource
import sys
from contextlib import contextmanager
from pathlib import Path

_active = []  # (folder, function from an audit event to an error or None) of the faults that are on


def _hook(event, arguments):
    """Python tells every hook before it opens, renames or removes a file; what a hook raises,
    the caller gets.
    """
    for folder, fault in _active:
        error = fault(event, arguments, folder)
        if error is not None:
            raise error


sys.addaudithook(_hook)  # once: a hook cannot be taken away


@contextmanager
def _on(folder, fault):
    _active.append((str(folder), fault))
    try:
        yield
    finally:
        _active.pop()


def _inside(path, folder):
    return isinstance(path, str | bytes | os.PathLike) and Path(
        os.fsdecode(path)
    ).absolute().is_relative_to(folder)


def _no_write(event, arguments, folder):
    writes = {
        "os.mkdir",
        "os.rename",
        "os.remove",
        "os.rmdir",
        "os.truncate",
        "os.link",
        "os.symlink",
        "sqlite3.connect",
    }
    opens = event == "open" and arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
    if (event in writes or opens) and _inside(arguments[0], folder):
        return OSError(errno.EROFS, os.strerror(errno.EROFS), os.fsdecode(arguments[0]))
    return None


@contextmanager
def read_only(folder):
    """Below this folder nothing can be opened for writing, made, renamed or removed."""
    with _on(folder, _no_write):
        yield


@contextmanager
def failing_once(folder, make=lambda: OSError(errno.EIO, os.strerror(errno.EIO))):
    """The first rename to a visible name below this folder raises `make()`: all was written,
    nothing published.
    """
    due = [make()]

    def fault(event, arguments, top):
        if event != "os.rename" or not due or not _inside(arguments[1], top):
            return None
        parts = Path(os.fsdecode(arguments[1])).relative_to(top).parts
        return None if any(part.startswith(".") for part in parts) else due.pop()

    with _on(folder, fault):
        yield


@contextmanager
def full(_, bytes_=300):
    """No file can grow beyond so many bytes, whatever writes it: Python, torch, safetensors,
    SQLite.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    # Python 3.11 keeps half a compiled module
    compiled, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    resource.setrlimit(resource.RLIMIT_FSIZE, (bytes_, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        sys.dont_write_bytecode = compiled


FAULTS = {"full": full, "read-only": read_only, "failing at the end": failing_once}
