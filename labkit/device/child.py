"""Call a function in a new process, so that a crash or an endless loop does not hurt the caller.

    run_in_child(partial(examine, path), seconds=60)

Two processes are started (`labkit.device.keeper`). The worker calls the function. The keeper, which
is the worker's parent, runs none of the function's code. When the worker ends, for whatever reason,
the keeper ends all processes that the worker has started (on Linux also those that left their
parent). The caller then removes the files in `own_folder()`. Keeper and worker end when the caller
ends, even by SIGKILL; then the keeper removes the files.

Limits  the process has the rights of the caller, and its result is unpickled. So this is no
        protection from code that means harm: it could, for example, kill the keeper and leave a
        process behind. Use a container against such code
Cost    a new Python and the imports of the function: half a second for ONNX Runtime, some seconds
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

PATIENCE = 3  # wall-clock time per allowed CPU time, because the machine may be busy
POLL_S = 0.1
END_LIMIT_S = 20  # for killing the processes that a process has started
MARK = "LABKIT_CHILD_FOLDER"  # variable in the environment of all processes of a call
# files in the folder of a call
CALL = "call.pickle"
RESULT = "result.pickle"
LOG = "log.txt"

folder_of_this_child: Path | None = None  # `labkit.device.keeper` sets it in the child


class ChildEnded(LabError):
    """The process of a call ended before its function returned; `found` says how.

    returncode  exit status of the process. A negative number -n means that signal n ended the
                process. None where the process was ended at the limit of wall-clock time or by
                `stopped`
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
    """Call a function in a new process and return its result.

    function      a function without arguments that pickle can store: a function of a module, or a
                  `functools.partial` of one
    seconds       limit of CPU time, summed over all threads. The limit of wall-clock time is
                  `PATIENCE` times as long
    memory        limit of the bytes that the process may write to, on Linux; None: no limit.
                  Address space that a GPU's driver reserves without writing to it does not count
    by_the_clock  True: `seconds` is the limit of wall-clock time, and there is no limit of CPU
                  time. Use this for a function that starts processes: each of them would inherit
                  the limit of CPU time
    stopped       function () -> bool that is called several times a second. Once it returns True,
                  the process is ended
    Raises        a LabError of the function unchanged; another exception of the function as a
                  LabError with its type and text; `ChildEnded` where the process crashed, was
                  stopped, or exceeded a limit
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
    """Return the temporary folder of the process in which `run_in_child` calls a function.

    The folder is removed when the process has ended.

    Raises  LabError in a process that `run_in_child` did not start
    """
    if folder_of_this_child is None:
        raise LabError(
            "This process has no folder of its own.", expected="a process that run_in_child started"
        )
    return folder_of_this_child


def end_descendants(process: psutil.Process) -> None:
    """Kill all descendants of a process: its children, their children, and so on.

    A child may start another process while it is being killed. Therefore the search is repeated
    until nothing is left, for at most `END_LIMIT_S` seconds.
    """
    _end_until_none_is_left(
        lambda: [child for child in process.children(recursive=True) if _is_alive(child)]
    )


def _end_until_none_is_left(processes):
    """Kill the processes that `processes()` lists, and repeat until the list is empty.

    This ends after at most `END_LIMIT_S` seconds.
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
    """Return whether a process runs; a zombie, which has ended but is still listed, does not."""
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def _start(folder, computing_seconds, memory):
    """Start the keeper for the call that is stored in a folder. Returns the process, a `Popen`.

    The new Python has the same module search path as this one.

    folder             folder that holds the pickled function
    computing_seconds  limit of CPU time in seconds; 0: no limit
    memory             limit in bytes; 0: no limit
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
    """Wait until a process has ended.

    process        the keeper, a `Popen`
    clock_seconds  limit of wall-clock time
    stopped        function () -> bool, or None
    Raises         ChildEnded when `clock_seconds` are over, or when `stopped()` returns True
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
    """End the keeper, the worker, and all processes that they have started."""
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
    """Kill each process whose environment holds the path of this call's folder."""
    _end_until_none_is_left(
        lambda: [process for process in psutil.process_iter() if _is_marked(process, folder)]
    )


def _is_marked(process, folder):
    """Return whether a process runs and its environment holds the path of a call's folder.

    False for a process of another user, whose environment cannot be read.
    """
    try:
        return process.environ().get(MARK) == str(folder) and _is_alive(process)
    except (psutil.Error, OSError):
        return False


def _end_in_words(returncode, log):
    """Return in words how a process ended: by which signal, or with which status and last output.

    returncode  exit status, or minus the number of the signal
    log         file with the output of the process
    """
    if returncode < 0:
        number = -returncode
        return f"ended by the system: {signal.strsignal(number)} (signal {number})"
    last_line = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-1:]
    return " ".join([f"ended with status {returncode}", *last_line])
