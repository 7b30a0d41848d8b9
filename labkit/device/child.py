"""Call a function in a process of its own, so that a crash, an endless loop or a full memory stays
there.

    run_in_child(partial(examine, path), seconds=60)

Two processes are started. The worker calls the function. Its parent, the keeper, runs nothing of
it: when the worker ends, however that happens, the keeper ends all that was started: children, on
Linux also those that left their parent, and the files in `own_folder()`. Both end when the caller
ends, even by SIGKILL.

Limits  the process has the rights of the caller, and its result is unpickled: code that wants to do
        harm can, such as leave a process behind, by killing the keeper and emptying an environment.
        Against that a container helps
Cost    a new Python and what the function imports: half a second for ONNX Runtime, some seconds
        with torch
"""

import contextlib
import ctypes
import os
import pickle
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from labkit.errors import LabError

PATIENCE = 3  # times as long as it may compute, a process may take on a busy machine
POLL_S = 0.1
END_LIMIT_S = 20  # for killing what a process has started
PR_SET_PDEATHSIG = 1  # of prctl(2)
PR_SET_CHILD_SUBREAPER = 36
MARK = "LABKIT_CHILD_FOLDER"  # in the environment of the processes of a call
_CALL = "call.pickle"
_RESULT = "result.pickle"
_LOG = "log.txt"

_folder_of_this_child: Path | None = None


class ChildEnded(LabError):
    """The process ended before its function returned; `found` says how.

    returncode  the exit status, below 0 where a signal ended it; None at a time limit or a stop
    """

    returncode: int | None = None


def run_in_child(
    function: Callable[[], Any],
    seconds: float,
    memory: int | None = None,
    *,
    by_the_clock: bool = False,
    stopped: Callable[[], bool] | None = None,
) -> Any:
    """Call a function in a new process and return what it returned.

    function      takes no arguments, and pickle knows it: a function of a module, perhaps in a
                  `functools.partial`
    seconds       of computing, over all threads; on the clock, the process may take `PATIENCE`
                  times as long
    memory        bytes that the process may write to (Linux; what a GPU's driver only reserves does
                  not count); None: no limit
    by_the_clock  count `seconds` on the clock only: for a function that waits for other processes,
                  because each of them would inherit a limit of computing
    stopped       asked several times a second; once it returns True, the process is ended
    Raises        the function's own LabError; another exception as a LabError with its type and
                  text; `ChildEnded` when the process crashed, was stopped, or exceeded a limit
    """
    # A CPU limit below one second cannot be expressed; the clock then still holds.
    computing_seconds = 0 if by_the_clock else max(1, round(seconds))
    clock_seconds = seconds if by_the_clock else PATIENCE * seconds
    with tempfile.TemporaryDirectory(prefix="lk-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        (folder / _CALL).write_bytes(pickle.dumps(function))
        process = _start(folder, computing_seconds, memory or 0)
        try:
            _wait(process, clock_seconds, stopped)
        finally:
            _end(process, folder)
        if not (folder / _RESULT).exists():
            limited = "on the clock" if by_the_clock else "of computing"
            error = ChildEnded(
                "The process of a computation ended before its result.",
                expected=f"at most {seconds:g} s {limited}",
                found=_end_in_words(process.returncode, folder / _LOG),
            )
            error.returncode = process.returncode
            raise error
        failed, result = pickle.loads((folder / _RESULT).read_bytes())
    if failed:
        raise result
    return result


def own_folder() -> Path:
    """Return the folder of this process, which `run_in_child` started: it is removed when the
    process has ended.
    """
    if _folder_of_this_child is None:
        raise LabError(
            "This process has no folder of its own.", expected="a process that run_in_child started"
        )
    return _folder_of_this_child


def end_descendants(process: psutil.Process) -> None:
    """Kill all processes that a process has started, and those that these have started, until
    nothing is left.

    A process of which a child was killed may start another one meanwhile, therefore the loop; it
    takes at most `END_LIMIT_S`.
    """
    _end_until_none_is_left(
        lambda: [child for child in process.children(recursive=True) if _is_alive(child)]
    )


def _end_until_none_is_left(processes):
    """Kill the processes that a function returns until it returns none, for at most
    `END_LIMIT_S`.
    """
    deadline = time.monotonic() + END_LIMIT_S
    while time.monotonic() < deadline:
        remaining = processes()
        if not remaining:
            return
        for process in remaining:
            with contextlib.suppress(psutil.Error):
                process.kill()
        time.sleep(0.02)


def _is_alive(process):
    """Return whether a process runs; one that has ended and waits to be asked for its status
    does not.
    """
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def _start(folder, computing_seconds, memory):
    """Start the process of a call that lies in a folder, with the module search path of this
    one.
    """
    search_path = [folder_name for folder_name in sys.path if folder_name]
    code = (
        f"import sys; sys.path[:] = {search_path!r}; from labkit.device import child; child.main()"
    )
    arguments = [str(folder), str(computing_seconds), str(memory), str(os.getpid())]
    with (folder / _LOG).open("wb") as log:
        return subprocess.Popen(
            [sys.executable, "-P", "-c", code, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            env=os.environ | {MARK: str(folder)},
        )


def _wait(process, clock_seconds, stopped):
    """Wait until the process has ended; ChildEnded at its limit on the clock, or when it is to
    be stopped.
    """
    deadline = time.monotonic() + clock_seconds
    while True:
        try:
            process.wait(timeout=max(0, min(POLL_S, deadline - time.monotonic())))
            return
        except subprocess.TimeoutExpired:
            pass
        if stopped is not None and stopped():
            raise ChildEnded(
                "A computation was stopped.", found="the caller does not want its result any more"
            )
        if time.monotonic() >= deadline:
            raise ChildEnded(
                "A computation did not end.",
                expected=f"a result within {clock_seconds:g} s",
                found=f"nothing after {clock_seconds:g} s",
            )


def _end(process, folder):
    """End the keeper, the worker, and all that they have started."""
    if process.poll() is None:
        # The descendants first: with the keeper gone, those that it adopted could no longer be
        # found.
        with contextlib.suppress(psutil.Error):
            end_descendants(psutil.Process(process.pid))
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    if process.wait() != 0:  # a keeper that was killed has ended nothing
        _end_marked(folder)


def _end_marked(folder):
    """Kill each process whose environment names the folder of a call."""
    _end_until_none_is_left(
        lambda: [process for process in psutil.process_iter() if _is_marked(process, folder)]
    )


def _is_marked(process, folder):
    """Return whether a process runs and its environment names this folder; that of others cannot
    be read.
    """
    try:
        return process.environ().get(MARK) == str(folder) and _is_alive(process)
    except (psutil.Error, OSError):
        return False


def _end_in_words(returncode, log):
    """Say how a process ended: by a signal, or with a status and the last line of its log."""
    if returncode < 0:
        number = -returncode
        return f"ended by the system: {signal.strsignal(number)} (signal {number})"
    last_line = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-1:]
    return " ".join([f"ended with status {returncode}", *last_line])


def main() -> None:
    """Be the keeper; the worker, its child, calls the function that lies in the folder and puts
    its result there.
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
    # At the lower of two limits of computing the system says why it ends the process, at the upper
    # one it does not.
    _limit(resource.RLIMIT_CPU, computing_seconds, computing_seconds + 5)
    _limit(resource.RLIMIT_DATA, memory, memory)
    _work(folder)


def _prctl(option, value):
    """Set an option of this process, where the system is Linux."""
    with contextlib.suppress(AttributeError):
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def _keep(worker_id, parent_id, folder):
    """Wait for the worker, end all that it has left, and end as it ended; never returns."""
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
    """Call the function that lies in a folder, and put its result beside it; never returns."""
    global _folder_of_this_child
    _folder_of_this_child = folder
    process_id = os.getpid()
    try:
        outcome = _outcome(folder)
    finally:  # also where the function calls sys.exit
        if os.getpid() != process_id:
            os._exit(0)  # the function forked this process, and it is not asked for a result

    # The result is whole or not there at all: the process may be ended while it writes.
    partial_result = folder / f"{_RESULT}.tmp"
    partial_result.write_bytes(outcome)
    partial_result.replace(folder / _RESULT)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # at once: Python takes seconds to forget all that torch has imported


def _end_with_parent(parent_id, folder):
    """End this process, the keeper, with all that was started and the folder, when its parent
    has ended.
    """
    while os.getppid() == parent_id:
        time.sleep(POLL_S)
    end_descendants(psutil.Process())
    shutil.rmtree(folder, ignore_errors=True)
    os._exit(1)


def _limit(kind, soft, hard):
    """Set a limit of this process; 0 sets none. A lower limit that is there already stays."""
    if soft:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(kind, (soft, hard))


def _outcome(folder):
    """Call the function that lies in a folder; returns (whether it failed, its result or its
    error), pickled.
    """
    try:
        function = pickle.loads((folder / _CALL).read_bytes())
        return pickle.dumps((False, function()))
    except LabError as error:
        return pickle.dumps((True, error))
    except Exception as error:
        text = " ".join(f"{type(error).__name__}: {error}".split())
        return pickle.dumps(
            (True, LabError("A computation in a process of its own failed.", found=text[:500]))
        )
