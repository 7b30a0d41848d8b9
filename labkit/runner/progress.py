"""Show how far a batch is while it runs.

A terminal shows one line that changes; elsewhere a new line is printed from time to time.
"""

import time
from contextlib import nullcontext

from rich.console import Console

from labkit import ledger
from labkit.ledger.rows import Attempt
from labkit.runner.tasks import LIMITS, label

LINE_EVERY_S = 10


def expected_seconds(tasks, profile):
    """Return how long each task will probably take: {label: seconds}.

    It is the time that the task's notebook took when it last passed with this profile. For a
    notebook that never has, it is the usual time of the profile.

    tasks    list of `NotebookTask`
    profile  "quick", "lab" or "paper"
    """
    passed = ledger.find(Attempt, profile=profile, status="passed", reported_by=None)
    seconds_by_notebook = {row.notebook: row.seconds for row in passed}
    return {
        label(task): seconds_by_notebook.get(task.notebook, LIMITS[profile].usual_s)
        for task in tasks
    }


class Progress:
    """Show how far a batch is, and how long it may still take.

    show      whether to print anything
    expected  {label: seconds} of the tasks that will run, as `expected_seconds` returns it
    together  how many tasks run at a time
    """

    def __init__(self, show, expected, together):
        self.expected = expected
        self.together = together
        self.started_at = {}
        self.printed_at = time.monotonic()  # time of the last line that `tick` printed
        self.actual_s = 0  # seconds of the notebooks that have ended
        self.expected_s = 0  # seconds that were expected of the same notebooks
        self.console = Console(quiet=not show, markup=False, highlight=False, soft_wrap=True)
        # the moving line, a context manager
        self.moving = self.console.status("") if self.console.is_terminal else nullcontext()

    def say(self, text):
        """Print a line that stays on the screen, above the line that changes."""
        self.console.print(text)

    def begin(self, name):
        """Record and print that a task starts.

        name  label of the task
        """
        self.started_at[name] = time.monotonic()
        self.say(f"{name}  started, {self.left()}")

    def tick(self, positions):
        """Show how far the batch is at this moment.

        positions  {label: position} of the tasks that run; a position is a text such as "cell 3/20"
        """
        now = time.monotonic()
        running = [
            f"{name}  {position}  {now - self.started_at[name]:.0f} s"
            for name, position in positions.items()
        ]
        text = ", ".join([*running, self.left()])
        if self.console.is_terminal:
            self.moving.update(text)
        elif running and now - self.printed_at >= LINE_EVERY_S:
            self.printed_at = now
            self.say(text)

    def left(self):
        """Return the time that the batch may still take, in words: "about 5 min left".

        If the tasks that have ended took twice as long as expected, the time that is left is
        doubled, too.
        """
        now = time.monotonic()
        remaining = [
            max(seconds - (now - self.started_at.get(name, now)), 1)
            for name, seconds in self.expected.items()
        ]
        pace = self.actual_s / self.expected_s if self.expected_s else 1
        seconds = pace * max([sum(remaining) / self.together, *remaining], default=0)
        return (
            f"about {seconds / 60:.0f} min left" if seconds > 90 else f"about {seconds:.0f} s left"
        )

    def end(self, attempt):
        """Record and print that a task has ended.

        attempt  the `Attempt` of the task
        """
        name = label(attempt)
        self.actual_s += attempt.seconds
        self.expected_s += self.expected.pop(name)
        cells = f"{attempt.cells_done}/{attempt.cells_total or '?'}"
        host = attempt.host and f"on {attempt.host}"
        columns = [name, attempt.status, cells, f"{attempt.seconds:.1f} s", host, attempt.reason]
        self.say("  ".join(filter(None, columns)))

    def finish(self, attempts):
        """Print how the batch ended: how many notebooks passed, and why the others did not.

        attempts  the `Attempt` rows of all its tasks
        """
        failed = [attempt for attempt in attempts if attempt.status != "passed"]
        self.say(f"\n{len(attempts) - len(failed)} of {len(attempts)} notebooks passed.")
        for attempt in failed:
            self.say(f"  {label(attempt)}: {attempt.reason}")
