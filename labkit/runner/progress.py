"""What a batch shows while it runs: a line that moves along on a terminal, plain lines
elsewhere; and what is left.
"""

import time
from contextlib import nullcontext

from rich.console import Console

from labkit import ledger
from labkit.ledger.rows import Attempt
from labkit.runner.tasks import LIMITS, label

LINE_EVERY_S = 10


def expected_seconds(tasks, profile):
    """Return how long each task may take: as long as its notebook took when it last passed in this
    profile.

    It is {label: seconds}. One that never passed takes what a notebook takes as a rule.
    """
    passed = ledger.find(Attempt, profile=profile, status="passed", reported_by=None)
    took = {row.notebook: row.seconds for row in passed}
    return {label(task): took.get(task.notebook, LIMITS[profile].usual_s) for task in tasks}


class Progress:
    """Shows how far a batch is.

    show      whether it is shown
    expected  {label: seconds} of the tasks that are to run
    together  how many run at a time
    """

    def __init__(self, show, expected, together):
        self.expected = expected
        self.together = together
        self.begun = {}
        self.printed_at = time.monotonic()  # the last line about a moment
        self.took = 0  # seconds of the notebooks that have ended
        self.foreseen = 0  # and those that were expected of them
        self.console = Console(quiet=not show, markup=False, highlight=False, soft_wrap=True)
        # a `with` shows it
        self.moving = self.console.status("") if self.console.is_terminal else nullcontext()

    def say(self, text):
        """Print a line that stays."""
        self.console.print(text)

    def begin(self, name):
        """Note that a task starts."""
        self.begun[name] = time.monotonic()
        self.say(f"{name}  started, {self.left()}")

    def tick(self, positions):
        """Show how far the batch is by now.

        positions  {label: position} of the tasks that run, such as "cell 3/20"
        """
        now = time.monotonic()
        running = [
            f"{name}  {position}  {now - self.begun[name]:.0f} s"
            for name, position in positions.items()
        ]
        text = ", ".join([*running, self.left()])
        if self.console.is_terminal:
            self.moving.update(text)
        elif running and now - self.printed_at >= LINE_EVERY_S:
            self.printed_at = now
            self.say(text)

    def left(self):
        """Return about how long the batch may still take, in words."""
        now = time.monotonic()
        still = [
            max(seconds - (now - self.begun.get(name, now)), 1)
            for name, seconds in self.expected.items()
        ]
        pace = self.took / self.foreseen if self.foreseen else 1
        seconds = pace * max([sum(still) / self.together, *still], default=0)
        return (
            f"about {seconds / 60:.0f} min left" if seconds > 90 else f"about {seconds:.0f} s left"
        )

    def end(self, attempt):
        """Note that a task ended: an `Attempt` row."""
        name = label(attempt)
        self.took += attempt.seconds
        self.foreseen += self.expected.pop(name)
        cells = f"{attempt.cells_done}/{attempt.cells_total or '?'}"
        host = attempt.host and f"on {attempt.host}"
        columns = [name, attempt.status, cells, f"{attempt.seconds:.1f} s", host, attempt.reason]
        self.say("  ".join(filter(None, columns)))

    def finish(self, attempts):
        """Say how the batch ended: the `Attempt` rows of all its tasks."""
        failed = [attempt for attempt in attempts if attempt.status != "passed"]
        self.say(f"\n{len(attempts) - len(failed)} of {len(attempts)} notebooks passed.")
        for attempt in failed:
            self.say(f"  {label(attempt)}: {attempt.reason}")
