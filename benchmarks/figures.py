"""The lines a benchmark prints: `name value target ok|short`, and the exit code they add up to."""

import os
import subprocess
import sys
import tempfile
import time

from labkit.files import root


class Figures:
    """Collects figures, prints each at once, and ends the program with 1 when one falls short."""

    def __init__(self):
        self.short = 0

    def add(self, name, value, *, at_most=None, at_least=None, unit=""):
        """Print one figure against its target; a value of None (not measured) falls short.

        name      one word, such as `import_labkit`
        at_most, at_least  the target, one or both, in `unit`
        """
        limits = ((">=", at_least), ("<=", at_most))
        bounds = [f"{sign}{limit:g}{unit}" for sign, limit in limits if limit is not None]
        fits = (
            value is not None
            and (at_least is None or value >= at_least)
            and (at_most is None or value <= at_most)
        )
        shown = "not-measured" if value is None else f"{value:.4g}{unit}"
        print(f"{name} {shown} {','.join(bounds) or '-'} {'ok' if fits else 'short'}", flush=True)
        self.short += not fits

    def part(self, name, run, *args):
        """Run one part, `run(figures, *args)`, between the load average before it and the
        seconds it took.
        """
        begin = time.perf_counter()
        self.add(f"load_average_before_{name}", os.getloadavg()[0])
        run(self, *args)
        self.add(f"seconds_of_{name}", time.perf_counter() - begin, unit="s")

    def lesson(self, *numbers, at_most):
        """How many seconds lessons take in the profile quick; not measured when one does not pass.

        numbers  such as "08"
        """
        command = [
            sys.executable,
            "-m",
            "labkit.cli",
            "run",
            *numbers,
            "--profile",
            "quick",
            "--fresh",
        ]
        with tempfile.TemporaryDirectory() as folder:
            begin = time.monotonic()
            done = subprocess.run(
                command, cwd=root(), env={**os.environ, "LABKIT_ARTIFACTS": folder}
            )
            seconds = None if done.returncode else time.monotonic() - begin
        self.add(f"lesson_{'_'.join(numbers)}_quick", seconds, at_most=at_most, unit="s")

    def exit(self):
        """End the program: 0 when every figure met its target, else 1."""
        sys.exit(1 if self.short else 0)
