"""What a batch shows while it runs: a line that moves along on a terminal, plain lines elsewhere; and what is left."""

import time
from contextlib import nullcontext

from rich.console import Console

from labkit import ledger
from labkit.ledger.rows import Attempt
from labkit.runner.tasks import PROFILES, label

LINE_EVERY_S = 10


def expected_seconds(tasks, profile):
    """{label: seconds} each task may take: as long as its notebook took when it last passed in this profile.

    One that never passed takes what a notebook takes as a rule.
    """
    passed = ledger.find(Attempt, profile=profile, status="passed", reported_by=None)
    took = {row.notebook: row.seconds for row in passed}
    return {label(task): took.get(task.notebook, PROFILES[profile][-1]) for task in tasks}


class Progress:
    """Shows how far a batch is.

    show      whether it is shown
    expected  {label: seconds} of the tasks that are to run
    together  how many run at a time
    """

    def __init__(self, show, expected, together):
        self.expected, self.together = expected, together
        self.begun = {}
        self.said = time.monotonic()
        self.took = self.foreseen = 0  # seconds of the notebooks that have ended
        self.console = Console(quiet=not show, markup=False, highlight=False, soft_wrap=True)
        self.moving = self.console.status("") if self.console.is_terminal else nullcontext()  # a `with` shows it

    def say(self, text):
        """A line that stays."""
        self.console.print(text)

    def begin(self, name):
        """A task starts."""
        self.begun[name] = time.monotonic()
        self.say(f"{name}  started, {self.left()}")

    def tick(self, places):
        """A moment passed. places: {label: place} of the tasks that run, such as "cell 3/20"."""
        now = time.monotonic()
        spent = [f"{name}  {place}  {now - self.begun[name]:.0f} s" for name, place in places.items()]
        text = ", ".join([*spent, self.left()])
        if self.console.is_terminal:
            self.moving.update(text)
        elif spent and now - self.said >= LINE_EVERY_S:
            self.said = now
            self.say(text)

    def left(self):
        """About how long the batch may still take, in words."""
        now = time.monotonic()
        still = [max(seconds - (now - self.begun.get(name, now)), 1) for name, seconds in self.expected.items()]
        pace = self.took / self.foreseen if self.foreseen else 1
        seconds = pace * max([sum(still) / self.together, *still], default=0)
        return f"about {seconds / 60:.0f} min left" if seconds > 90 else f"about {seconds:.0f} s left"

    def end(self, attempt):
        """A task ended: an `Attempt` row."""
        name = label(attempt)
        self.took, self.foreseen = self.took + attempt.seconds, self.foreseen + self.expected.pop(name)
        cells = f"{attempt.cells_done}/{attempt.cells_total or '?'}"
        parts = [name, attempt.status, cells, f"{attempt.seconds:.1f} s", attempt.host and f"on {attempt.host}"]
        self.say("  ".join(filter(None, [*parts, attempt.reason])))

    def finish(self, attempts):
        """All tasks ended: their `Attempt` rows."""
        failed = [attempt for attempt in attempts if attempt.status != "passed"]
        self.say(f"\n{len(attempts) - len(failed)} of {len(attempts)} notebooks passed.")
        for attempt in failed:
            self.say(f"  {label(attempt)}: {attempt.reason}")
