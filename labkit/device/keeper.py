"""Run the two processes that `labkit.device.child.run_in_child` starts: the worker and its keeper.

The keeper is started first. It forks the worker, which calls the function, and waits for the
worker. Then the keeper ends all processes that the worker has left behind, and exits with the
worker's status.
"""

import contextlib
import ctypes
import os
import pickle
import resource
import shutil
import signal
import sys
import threading
import time
from pathlib import Path

import psutil

from labkit.device import child
from labkit.device.child import CALL, POLL_S, RESULT, end_descendants
from labkit.errors import LabError

PR_SET_PDEATHSIG = 1  # of prctl(2)
PR_SET_CHILD_SUBREAPER = 36


def main() -> None:
    """Fork the worker, and go on as its keeper.

    The command line holds the folder of the call, the limit of CPU time in seconds, the limit of
    memory in bytes, and the process id of the caller. The worker calls the function that is stored
    in the folder, and stores the result there.
    """
    folder = Path(sys.argv[1])
    computing_seconds, memory, parent_id = map(int, sys.argv[2:])

    # On Linux, children whose parent has ended become children of the keeper, so that none is lost.
    _prctl(PR_SET_CHILD_SUBREAPER, 1)
    keeper_id = os.getpid()
    worker_id = os.fork()
    if worker_id:
        _keep(worker_id, parent_id, folder)

    # The worker: a group of its own, for a function that signals its group; and it ends when its
    # keeper is killed.
    os.setsid()
    _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != keeper_id:
        os._exit(1)
    # At the lower limit of CPU time the signal, SIGXCPU, says why the process ends; SIGKILL, at the
    # upper limit, does not.
    _limit(resource.RLIMIT_CPU, computing_seconds, computing_seconds + 5)
    _limit(resource.RLIMIT_DATA, memory, memory)
    _work(folder)


def _prctl(option, value):
    """Set an option of this process by the Linux function prctl(2); do nothing on other systems."""
    with contextlib.suppress(AttributeError):
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def _keep(worker_id, parent_id, folder):
    """Wait for the worker, end all processes that it left behind, and exit with its status.

    Never returns. If a signal ended the worker, the keeper ends by the same signal.
    """
    threading.Thread(target=_end_with_parent, args=(parent_id, folder), daemon=True).start()
    _, status = os.waitpid(worker_id, 0)
    end_descendants(psutil.Process())
    if os.getppid() != parent_id:
        shutil.rmtree(folder, ignore_errors=True)

    returncode = os.waitstatus_to_exitcode(status)
    if returncode < 0:  # by the same signal, without a second core file
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        with contextlib.suppress(OSError):  # SIGKILL has no handler
            signal.signal(-returncode, signal.SIG_DFL)
        os.kill(os.getpid(), -returncode)
    os._exit(abs(returncode))


def _work(folder):
    """Call the function that is stored in a folder, and store its result there. Never returns."""
    child.folder_of_this_child = folder
    process_id = os.getpid()
    try:
        outcome = _outcome(folder)
    finally:  # also where the function calls sys.exit
        if os.getpid() != process_id:
            os._exit(0)  # the function forked this process, and it is not asked for a result

    # The result is whole or not there at all: the process may be ended while it writes.
    partial_result = folder / f"{RESULT}.tmp"
    partial_result.write_bytes(outcome)
    partial_result.replace(folder / RESULT)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # at once: Python takes seconds to forget all that torch has imported


def _end_with_parent(parent_id, folder):
    """Wait until the caller has ended; then clean up in its place, and exit.

    All processes of the call are ended and its folder is removed.
    """
    while os.getppid() == parent_id:
        time.sleep(POLL_S)
    end_descendants(psutil.Process())
    shutil.rmtree(folder, ignore_errors=True)
    os._exit(1)


def _limit(kind, soft, hard):
    """Set a resource limit of this process; do nothing if the system refuses it.

    kind        a constant of `resource`, such as RLIMIT_CPU
    soft, hard  the two limits, in the unit of `kind`; a soft limit of 0 sets none
    """
    if soft:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(kind, (soft, hard))


def _outcome(folder):
    """Call the function that is stored in a folder. Returns a pickled tuple, as bytes.

    The tuple is (False, result) where the function returned, and (True, LabError) where it raised.
    """
    try:
        function = pickle.loads((folder / CALL).read_bytes())
        return pickle.dumps((False, function()))
    except LabError as error:
        return pickle.dumps((True, error))
    except Exception as error:
        text = " ".join(f"{type(error).__name__}: {error}".split())
        return pickle.dumps(
            (True, LabError("A computation in a process of its own failed.", found=text[:500]))
        )
