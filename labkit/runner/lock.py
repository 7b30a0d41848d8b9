"""One batch at a time: a lock on the artifacts folder that dies with the processes that hold it."""

import os
import time
from contextlib import contextmanager, suppress
from pathlib import Path

from labkit.errors import LabError

WAIT_FOR_KEEPER_S = 30


@contextmanager
def batch_lock(folder):
    """Hold the folder's batch lock; yields its file descriptor.

    When the batch that held it was killed, its keeper may still be cleaning up: that is waited for.
    A living batch is not: LabError.
    """
    path = Path(folder) / ".batch.lock"
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        acquire(handle, path)
        write_owner(handle, str(os.getpid()))
        try:
            yield handle
        finally:
            write_owner(handle, "")
    finally:
        os.close(handle)


def write_owner(handle, text):
    """Say in the lock file whose lock it is; empty while only a keeper holds it."""
    os.ftruncate(handle, 0)
    os.lseek(handle, 0, os.SEEK_SET)
    os.write(handle, text.encode())


def acquire(handle, path):
    """Take the lock, waiting for the keeper of a dead batch only."""
    deadline = time.monotonic() + WAIT_FOR_KEEPER_S
    while not try_lock(handle):
        owner = living_owner(path)
        if owner or time.monotonic() > deadline:
            raise LabError(
                "Another batch is running on these artifacts.",
                expected="no other batch",
                found=f"process {owner}" if owner else f"a lock on {path.name}",
                fix="wait until it ends, or set LABKIT_ARTIFACTS to another folder",
            )
        time.sleep(0.05)


def try_lock(handle):
    """Whether the lock could be taken now."""
    try:
        if os.name == "posix":
            import fcntl

            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        else:
            import msvcrt

            os.lseek(handle, 1 << 20, os.SEEK_SET)  # a byte past the text, so that the text stays readable
            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
    except OSError:
        return False
    return True


def living_owner(path):
    """The process id of the batch that holds the lock, or None when it is dead or unknown."""
    import psutil

    with suppress(OSError, ValueError, psutil.Error):
        pid = int(path.read_text(encoding="ascii"))
        if psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
            return pid
    return None
