"""Leaves nothing behind: one batch at a time, in folders of its own, with a keeper that clears up after it.

The keeper is a small process in a session of its own that holds one end of a pipe. When the pipe closes, for whatever
reason the batch ended, it kills every process that carries the batch's mark in its environment, with all children,
until none is left. A batch holds `.batch.lock`, its keeper `.keeper.lock`: the next batch waits for the keeper only.
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
from filelock import FileLock, Timeout

from labkit.errors import LabError
from labkit.files import artifacts

BATCH_MARK = "LABKIT_BATCH_TOKEN"  # unique for each start of a batch, a resumed one included
RUN_MARK = "LABKIT_RUN_KEY"
WAIT_FOR_KEEPER_S = 30
REAP_LIMIT_S = 20


def marked(name, value):
    """Living processes whose environment says `name=value`, and all their descendants; never the caller."""
    found = set()
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            if process.environ().get(name) == value and process.status() != psutil.STATUS_ZOMBIE:
                found |= {process, *process.children(recursive=True)}
    return [process for process in found if process.pid != os.getpid()]


def reap(name, value):
    """Kill the marked processes until none is left, or for `REAP_LIMIT_S` seconds."""
    deadline = time.monotonic() + REAP_LIMIT_S
    while (left := marked(name, value)) and time.monotonic() < deadline:
        for process in left:
            with suppress(psutil.Error):
                process.kill()
        time.sleep(0.02)


@contextmanager
def only_batch():
    """Hold the lock of the artifacts; the keeper of a dead batch is waited for, a living batch is not: LabError.

    yields  the path of the lock that a keeper is to hold
    """
    keepers = artifacts() / ".keeper.lock"
    try:
        with FileLock(artifacts() / ".batch.lock", timeout=0):
            with FileLock(keepers, timeout=WAIT_FOR_KEEPER_S):
                pass
            yield keepers
    except Timeout as taken:
        raise LabError(
            "Another batch is running on these artifacts.",
            found=Path(taken.lock_file).name,
            fix="wait until it ends, or set LABKIT_ARTIFACTS to another folder",
        ) from None


@contextmanager
def private_places(lock):
    """(runtime folder, work folder, token) of this start of a batch; its keeper removes them whatever happens.

    lock  path of the lock that the keeper holds until nothing is left
    """
    token, executed = uuid.uuid4().hex, artifacts().resolve() / "executed"
    for left in executed.glob(".work-*"):  # of a batch that was killed together with its keeper
        shutil.rmtree(left, ignore_errors=True)
    for left in executed.glob("*/.*.tmp"):
        left.unlink(missing_ok=True)
    work = executed / f".work-{token}"
    work.mkdir(parents=True)
    # Sockets lie in the runtime folder, and their paths must stay short.
    runtime = tempfile.mkdtemp(prefix="lk-", dir="/tmp")
    command = [sys.executable, "-P", "-m", "labkit.runner.keeper", token, lock, runtime, work]
    keeper = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd="/",
        start_new_session=True,
    )
    try:
        keeper.stdout.readline()  # it holds its lock from here on
        yield Path(runtime), work, token
    finally:
        keeper.stdin.close()
        keeper.wait()
        keeper.stdout.close()
        for folder in (runtime, work):  # where the keeper was killed
            shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def stoppable():
    """Let Ctrl-C and SIGTERM end the batch at its next step. Yields a function that raises when it was told to stop.

    Python drops an exception that a signal raises at a bad moment, such as amid an import: so the signal is noted only.
    """
    told, before = [], {}

    def go_on():
        if told:
            raise KeyboardInterrupt if told[0] == signal.SIGINT else SystemExit(128 + told[0])

    for number in (signal.SIGINT, signal.SIGTERM):
        main = threading.current_thread() is threading.main_thread()  # no other may set a handler
        if main and signal.getsignal(number) != signal.SIG_IGN:
            before[number] = signal.signal(number, lambda number, frame: told.append(number))
    try:
        yield go_on
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def main(token, lock, *folders):
    """Be the keeper: wait for the batch to end, then clear up after it."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    with FileLock(lock):
        print("ready", flush=True)
        while os.read(0, 1024):
            pass
        reap(BATCH_MARK, token)
        for folder in folders:
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
