"""What a batch shows while it runs: bars on a terminal, plain lines elsewhere; and how long it may still take."""

import sys
import time

from labkit import ledger
from labkit.ledger.rows import Attempt

LINE_EVERY_S = 10


def expected_seconds(names, profile, default):
    """{name: seconds} each notebook may take: as long as the last time it passed in this profile, else `default`."""
    known = {row.notebook: row.seconds for row in ledger.find(Attempt, profile=profile, status="passed")}
    return {name: known.get(name, default) for name in names}


class Progress:
    """Shows how far a batch is.

    show      False: nothing; None: bars on a terminal, lines elsewhere: at the start, every ten seconds, at the end
    expected  {name: seconds} of the notebooks that are to run
    together  how many run at a time
    """

    def __init__(self, show, expected, together):
        self.expected, self.together, self.ended = expected, together, []
        self.begun, self.said, self.bars, self.tasks = {}, {}, None, {}
        self.silent = show is False
        if not self.silent and sys.stdout.isatty():
            from rich.progress import Progress as Bars

            self.bars = Bars("{task.description}", *Bars.get_default_columns()[1:2], "{task.fields[place]}")

    def __enter__(self):
        if self.bars:
            self.bars.start()
        return self

    def __exit__(self, *error):
        if self.bars:
            self.bars.stop()

    def say(self, text):
        """A line that stays."""
        if self.bars:
            self.bars.console.print(text, markup=False, highlight=False)
        elif not self.silent:
            print(text, flush=True)

    def left(self):
        """About how long the batch may still take, in words."""
        now, still = time.monotonic(), []
        for name, seconds in self.expected.items():
            if name not in self.ended:
                still.append(max(seconds - (now - self.begun.get(name, now)), 1))
        seconds = max([sum(still) / self.together, *still], default=0)
        return f"about {seconds / 60:.0f} min left" if seconds > 90 else f"about {seconds:.0f} s left"

    def begin(self, name):
        """A notebook starts."""
        self.begun[name] = self.said[name] = time.monotonic()
        if self.bars:
            self.tasks[name] = self.bars.add_task(name, total=None, place="")
        else:
            self.say(f"{name}  started: {len(self.begun)} of {len(self.expected)}, {self.left()}")

    def cell(self, name, number, total):
        """A notebook is in its cell `number` of `total`."""
        now = time.monotonic()
        spent = f"{now - self.begun[name]:.0f} s"
        if self.bars:
            place = f"{number}/{total or '?'}  {spent}, in all {self.left()}"
            self.bars.update(self.tasks[name], completed=number, total=total, place=place)
        elif number and now - self.said[name] >= LINE_EVERY_S:
            self.said[name] = now
            self.say(f"{name}  cell {number}/{total}  {spent}, in all {self.left()}")

    def end(self, attempt):
        """A notebook ended: an `Attempt` row."""
        self.ended.append(attempt.notebook)
        if attempt.notebook in self.tasks:
            self.bars.remove_task(self.tasks.pop(attempt.notebook))
        cells = "-" if attempt.cells_total is None else f"{attempt.cells_done}/{attempt.cells_total}"
        parts = [attempt.notebook, attempt.status, cells, f"{attempt.seconds or 0:.1f} s", attempt.reason]
        self.say("  ".join(filter(None, parts)))

    def finish(self, attempts):
        """All notebooks ended: their `Attempt` rows."""
        failed = [attempt for attempt in attempts if attempt.status != "passed"]
        self.say(f"\n{len(attempts) - len(failed)} of {len(attempts)} notebooks passed.")
        for attempt in failed:
            self.say(f"  {attempt.notebook}: {attempt.reason}")
