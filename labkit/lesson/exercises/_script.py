"""Run a program that a reader writes as an exercise, in a process of its own."""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path


class Wrong(Exception):
    """A check raises this for an answer that does not pass.

    The message tells the reader what was seen and where to look.
    """


class Script(str):
    """The text of a program that a reader writes to a file."""

    __slots__ = ()

    def run(self, *arguments: str, launcher: tuple[str, ...] = (), seconds: float = 60) -> str:
        """Run the program in an empty folder and return what it printed on stdout.

        arguments  arguments of the program's command line
        launcher   words between `python` and the file, such as ("-m", "torch.distributed.run",
                   "--nproc-per-node=2")
        seconds    of wall-clock time, after which the program and all that it started are killed
        Raises     Wrong where the program fails or does not end in time
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
    """Run a program in a folder to its end, and return (status, stdout, stderr).

    Processes that the program started are killed when it has ended.
    Raises  Wrong where it has not ended after `seconds`; it is killed, too
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
