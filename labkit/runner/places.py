"""The private folders of a running batch, and how it ends when it is told to."""

import os
import shutil
import signal
import tempfile
import threading
import uuid
from contextlib import contextmanager
from pathlib import Path

from labkit.files import artifacts
from labkit.runner import keeper

LONGEST_SOCKET_PREFIX = 90  # the system's limit for a socket's path is 104 to 108 bytes


@contextmanager
def private_places(lock):
    """(runtime folder, work folder, token) of this start of the batch; a keeper removes them whatever happens."""
    token = uuid.uuid4().hex
    work = artifacts().resolve() / "executed" / f".work-{token}"
    work.mkdir(parents=True)
    runtime = Path(tempfile.mkdtemp(prefix="lk-", dir=short_temporary_folder()))
    guard = keeper.start_keeper(token, [runtime, work], lock=lock)
    try:
        yield runtime, work, token
    finally:
        guard.stdin.close()
        guard.wait()


def short_temporary_folder():
    """A folder for sockets, whose paths must stay short."""
    usual = tempfile.gettempdir()
    return "/tmp" if len(usual) > 20 and os.access("/tmp", os.W_OK) else usual


def clean_up():
    """Remove what a batch left that was killed together with its keeper."""
    for folder in (artifacts() / "executed").glob(".work-*"):
        shutil.rmtree(folder, ignore_errors=True)
    for stale in (artifacts() / "executed").glob("*/.*.tmp"):
        stale.unlink(missing_ok=True)


@contextmanager
def stop_on_terminate():
    """Let SIGTERM end the batch as tidily as Ctrl-C does."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number, frame):
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def socket_prefix(folder, *, number):
    """What the names of one kernel's sockets begin with; None where kernels must use network ports."""
    prefix = str(folder / f"k{number}")
    return prefix if os.name == "posix" and len(prefix) < LONGEST_SOCKET_PREFIX else None
