"""Kills what a batch would leave behind.

A batch starts this module as a small process in a session of its own, holding one end of a pipe. When the pipe
closes, for whatever reason the batch ended, every process that carries the batch's mark in its environment is
killed, with all its children, until none is left. Only the standard library and psutil are used here.
"""

import ctypes
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil

BATCH_MARK = "LABKIT_BATCH_TOKEN"  # unique for each start of a batch, a resumed one included
RUN_MARK = "LABKIT_RUN_KEY"
REAP_LIMIT_S = 20


def marked(name, value):
    """Living processes whose environment says `name=value`, and all their descendants; never the caller."""
    found = {}
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            if process.environ().get(name) == value and process.status() != psutil.STATUS_ZOMBIE:
                found[process.pid] = process
    for process in list(found.values()):
        with suppress(psutil.Error):
            found.update((child.pid, child) for child in process.children(recursive=True))
    found.pop(os.getpid(), None)
    return list(found.values())


def reap(name, value, *, limit_s=REAP_LIMIT_S):
    """Kill the marked processes until none is left. Returns whether that was reached within `limit_s` seconds."""
    deadline = time.monotonic() + limit_s
    while left := marked(name, value):
        for process in left:
            with suppress(psutil.Error):
                process.kill()
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def reap_children():
    """Kill every descendant of this process."""
    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            child.kill()


def adopt_orphans():
    """Make descendants whose parent died children of this process (Linux), so that none slips away."""
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER


def start_keeper(token, folders, *, lock=None):
    """Start the keeper of the batch marked `token`; closing its `stdin` (or dying) lets it act.

    folders  removed once no process is left
    lock     file descriptor held open by the keeper too, so that the next batch waits for it
    """
    command = [sys.executable, "-P", "-m", "labkit.runner.keeper", token, *map(str, folders)]
    own = {"start_new_session": True, "pass_fds": () if lock is None else (lock,)} if os.name == "posix" else {}
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    return subprocess.Popen(command, stdin=subprocess.PIPE, cwd=Path(sys.executable).anchor, **quiet, **own)


def main(token, *folders):
    """Wait for the batch to end, then clean up after it."""
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
    while os.read(0, 1024):
        pass
    reap(BATCH_MARK, token)
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
