"""What a batch shows while it runs: a line that moves along on a terminal, plain lines elsewhere; and what is left."""

import time
from contextlib import nullcontext

from rich.console import Console

from labkit import ledger
from labkit.ledger.rows import Attempt

LINE_EVERY_S = 10


def expected_seconds(names, profile, default):
    """{name: seconds} each notebook may take: as long as the last time it passed in this profile, else `default`."""
    known = {row.notebook: row.seconds for row in ledger.find(Attempt, profile=profile, status="passed")}
    return {name: known.get(name, default) for name in names}


class Progress:
    """Shows how far a batch is.

    show      False: nothing
    expected  {name: seconds} of the notebooks that are to run
    together  how many run at a time
    """

    def __init__(self, show, expected, together):
        self.expected, self.together = dict(expected), together
        self.begun, self.places, self.said = {}, {}, time.monotonic()
        self.took, self.foreseen = 0, 0  # seconds of the notebooks that have ended
        self.console = Console(quiet=show is False, markup=False, highlight=False, soft_wrap=True)
        self.moving = self.console.status("") if self.console.is_terminal else nullcontext()  # a `with` shows it

    def say(self, text):
        """A line that stays."""
        self.console.print(text)

    def begin(self, name):
        """A notebook starts."""
        self.begun[name] = time.monotonic()
        self.say(f"{name}  started, {self.left()}")

    def tick(self, name=None, place=None):
        """A moment passed, or a notebook came to another place, such as "cell 3/20"."""
        if name:
            self.places[name] = place
        now = time.monotonic()
        spent = [f"{name}  {place}  {now - self.begun[name]:.0f} s" for name, place in self.places.items()]
        text = ", ".join([*spent, self.left()])
        if self.console.is_terminal:
            self.moving.update(text)
        elif self.places and now - self.said >= LINE_EVERY_S:
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
        """A notebook ended: an `Attempt` row."""
        self.took, self.foreseen = self.took + attempt.seconds, self.foreseen + self.expected.pop(attempt.notebook)
        self.places.pop(attempt.notebook, None)
        cells = f"{attempt.cells_done}/{attempt.cells_total or '?'}"
        parts = [attempt.notebook, attempt.status, cells, f"{attempt.seconds:.1f} s", attempt.reason]
        self.say("  ".join(filter(None, parts)))

    def finish(self, attempts):
        """All notebooks ended: their `Attempt` rows."""
        failed = [attempt for attempt in attempts if attempt.status != "passed"]
        self.say(f"\n{len(attempts) - len(failed)} of {len(attempts)} notebooks passed.")
        for attempt in failed:
            self.say(f"  {attempt.notebook}: {attempt.reason}")
