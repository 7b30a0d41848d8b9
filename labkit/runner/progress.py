"""What a batch shows while it runs: a live table on a terminal, plain lines elsewhere, and a table at the end."""

import sys
import time

LINE_EVERY_S = 10


class Silent:
    """Shows nothing; the base of the others."""

    def __enter__(self):
        return self

    def __exit__(self, *error):
        return None

    def begin(self, name):
        """A notebook starts."""

    def cell(self, name, number, total):
        """A cell starts; with name None: a moment passed."""

    def keep(self, attempt):
        """A notebook passed before and need not run again: an `Attempt` row."""

    def end(self, attempt):
        """A notebook ended: an `Attempt` row."""

    def finish(self, attempts):
        """All notebooks ended."""


class Lines(Silent):
    """Plain lines: at the start, every ten seconds, and at the end of a notebook."""

    def __init__(self, write=print):
        self.write, self.begun, self.said = write, {}, {}

    def begin(self, name):
        self.begun[name] = self.said[name] = time.monotonic()
        self.write(f"{name}  started")

    def cell(self, name, number, total):
        if not number:
            return
        now = time.monotonic()
        if now - self.said[name] >= LINE_EVERY_S:
            self.said[name] = now
            self.write(f"{name}  cell {number}/{total}  {now - self.begun[name]:.0f} s")

    def keep(self, attempt):
        self.write(f"{attempt.notebook}  passed before, not run again")

    def end(self, attempt):
        self.write(end_line(attempt))

    def finish(self, attempts):
        self.write("\n" + "\n".join(summary(attempts)))


class Live(Lines):
    """A line for each running notebook that moves along, on a terminal."""

    def __init__(self):
        from rich.live import Live as RichLive

        super().__init__()
        self.places = {}
        self.live = RichLive(get_renderable=self.picture, refresh_per_second=4, transient=True)

    def __enter__(self):
        self.live.start()
        self.write = lambda text: self.live.console.print(text, markup=False, highlight=False)
        return self

    def __exit__(self, *error):
        self.live.stop()

    def picture(self):
        from rich.text import Text

        now = time.monotonic()
        rows = [
            f"{name}  cell {number}/{total or '?'}  {now - self.begun[name]:.0f} s"
            for name, (number, total) in list(self.places.items())
        ]
        return Text("\n".join(rows))

    def begin(self, name):
        self.begun[name] = time.monotonic()
        self.places[name] = (0, None)

    def cell(self, name, number, total):
        if name:
            self.places[name] = (number, total)

    def end(self, attempt):
        self.places.pop(attempt.notebook, None)
        super().end(attempt)

    def finish(self, attempts):
        self.live.stop()
        super().finish(attempts)


def choose(show):
    """The display for `show`: None means live on a terminal and lines elsewhere, False nothing."""
    if show is False:
        return Silent()
    return Live() if sys.stdout.isatty() else Lines(lambda text: print(text, flush=True))


def end_line(attempt):
    """One line on how a notebook ended."""
    return "  ".join(
        [attempt.notebook, attempt.status, cells(attempt), seconds(attempt), *filter(None, [attempt.reason])]
    )


def summary(attempts):
    """The lines of the table at the end."""
    table = [("notebook", "status", "cells", "time", "reason")]
    table += [(a.notebook, a.status, cells(a), seconds(a), a.reason or "") for a in attempts]
    widths = [max(len(row[column]) for row in table) for column in range(4)]
    return ["  ".join([*map(str.ljust, row[:4], widths), row[4]]).rstrip() for row in table]


def cells(attempt):
    return "-" if attempt.cells_total is None else f"{attempt.cells_done}/{attempt.cells_total}"


def seconds(attempt):
    return "-" if attempt.seconds is None else f"{attempt.seconds:.1f} s"
