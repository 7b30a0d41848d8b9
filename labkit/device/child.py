"""Call a function in a process of its own, so that a crash, an endless loop or a full memory stays
there.

    run_in_child(partial(examine, path), seconds=60)

Two processes are started (`labkit.device.keeper`). The worker calls the function. Its parent, the
keeper, runs nothing of it: when the worker ends, however that happens, the keeper ends all that was
started: children, on Linux also those that left their parent, and the files in `own_folder()`. Both
end when the caller ends, even by SIGKILL.

Limits  the process has the rights of the caller, and its result is unpickled: code that wants to do
        harm can, such as leave a process behind, by killing the keeper and emptying an environment.
        Against that a container helps
Cost    a new Python and what the function imports: half a second for ONNX Runtime, some seconds
        with torch
"""

import contextlib
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from labkit.errors import LabError

PATIENCE = 3  # times as long as it may compute, a process may take on a busy machine
POLL_S = 0.1
END_LIMIT_S = 20  # for killing what a process has started
MARK = "LABKIT_CHILD_FOLDER"  # in the environment of the processes of a call
# files in the folder of a call
CALL = "call.pickle"
RESULT = "result.pickle"
LOG = "log.txt"

folder_of_this_child: Path | None = None  # `labkit.device.keeper` sets it in the child


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
    seconds       limit of CPU time, summed over all threads. By the wall clock the process may take
                  `PATIENCE` times as long
    memory        bytes that the process may write to (Linux; what a GPU's driver only reserves does
                  not count); None: no limit
    by_the_clock  limit the wall-clock time to `seconds` and set no limit of CPU time: for a
                  function that starts processes, because each would inherit that limit
    stopped       asked several times a second; once it returns True, the process is ended
    Raises        the function's own LabError; another exception as a LabError with its type and
                  text; `ChildEnded` when the process crashed, was stopped, or exceeded a limit
    """
    # A CPU limit below one second cannot be expressed; the clock then still holds.
    computing_seconds = 0 if by_the_clock else max(1, round(seconds))
    clock_seconds = seconds if by_the_clock else PATIENCE * seconds
    with tempfile.TemporaryDirectory(prefix="lk-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        (folder / CALL).write_bytes(pickle.dumps(function))
        process = _start(folder, computing_seconds, memory or 0)
        try:
            _wait(process, clock_seconds, stopped)
        finally:
            _end(process, folder)
        if not (folder / RESULT).exists():
            limited = "on the clock" if by_the_clock else "of computing"
            error = ChildEnded(
                "The process of a computation ended before its result.",
                expected=f"at most {seconds:g} s {limited}",
                found=_end_in_words(process.returncode, folder / LOG),
            )
            error.returncode = process.returncode
            raise error
        failed, result = pickle.loads((folder / RESULT).read_bytes())
    if failed:
        raise result
    return result


def own_folder() -> Path:
    """Return the folder of this process, which `run_in_child` started: it is removed when the
    process has ended.
    """
    if folder_of_this_child is None:
        raise LabError(
            "This process has no folder of its own.", expected="a process that run_in_child started"
        )
    return folder_of_this_child


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
        f"import sys; sys.path[:] = {search_path!r}; from labkit.device import keeper; "
        "keeper.main()"
    )
    arguments = [str(folder), str(computing_seconds), str(memory), str(os.getpid())]
    with (folder / LOG).open("wb") as log:
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
