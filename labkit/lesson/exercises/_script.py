"""A program that a reader writes as an exercise, run in a process of its own."""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path


class Wrong(Exception):
    """An answer does not pass; the message tells the reader what was seen and where to look."""


class Script(str):
    """The text of a program that a reader writes to a file; `run` runs it in a process of its
    own.
    """

    __slots__ = ()

    def run(self, *arguments: str, launcher: tuple[str, ...] = (), seconds: float = 60) -> str:
        """Run the program in an empty folder and return what it printed.

        arguments  of its command line
        launcher   what stands between `python` and the file: ("-m", "torch.distributed.run",
                   "--nproc-per-node=2")
        seconds    on the clock, after which it is ended, with all that it began
        Raises     Wrong where it fails or does not end in time
        """
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "script.py").write_text(self, encoding="utf-8")
            command = [sys.executable, *launcher, "script.py", *arguments]
            status, printed, errors = _ended(command, folder, seconds)
        if status:
            last_line = errors.strip().splitlines()[-1:] or ["nothing on stderr"]
            raise Wrong(f"Your script ended with status {status}: {last_line[0]}")
        return printed


def _ended(command, folder, seconds):
    """(status, stdout, stderr) of a program that ran in a folder; what it began ends with it."""
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
