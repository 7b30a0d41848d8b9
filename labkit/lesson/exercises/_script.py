"""Run a program that a reader writes as an exercise, in a process of its own."""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path


class Wrong(Exception):
    """Raised by a check for an answer that does not pass.

    The message tells the reader what was seen and where to look.
    """


class Script(str):
    """The text of a program that a reader writes to a file."""

    __slots__ = ()

    def run(self, *arguments: str, launcher: tuple[str, ...] = (), seconds: float = 60) -> str:
        """Run the program in an empty folder, and return what it printed to stdout.

        arguments  arguments of the program's command line
        launcher   words between `python` and the file, such as ("-m", "torch.distributed.run",
                   "--nproc-per-node=2")
        seconds    limit of wall-clock time, after which the program and the processes that it
                   started are killed
        Raises     Wrong if the program ends with an error status, or not in time
        """
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "script.py").write_text(self, encoding="utf-8")
            command = [sys.executable, *launcher, "script.py", *arguments]
            status, printed, errors = _run_to_end(command, folder, seconds)
        if status:
            last_line = errors.strip().splitlines()[-1:] or ["nothing on stderr"]
            raise Wrong(f"Your script ended with status {status}: {last_line[0]}")
        return printed


def _run_to_end(command, folder, seconds):
    """Run a program in a folder until it ends. Returns (status, stdout, stderr).

    Processes that the program started and left behind are killed.

    seconds  limit of wall-clock time
    Raises   Wrong if the program runs longer; it is killed
    """
    with subprocess.Popen(
        command,
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # a group of its own, which is ended below
    ) as process:
        try:
            printed, errors = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            raise Wrong(
                f"Your script had not finished after {seconds:g} seconds. What does it wait for?"
            ) from None
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    return process.returncode, printed, errors
