"""Where the seconds of training go: a stopwatch with laps that knows a device works through a queue."""

from collections import Counter

from labkit.measure import clock_of

PHASES = ("data", "forward", "backward", "optimizer")


class Laps:
    """A stopwatch: `lap("forward")` books the time since the last lap under "forward".

    device  a device, or a `measure.Clock`
    how     None: books nothing. "events": marks in the device's own queue, read when the epoch is over; training goes
            on undisturbed (a device without such marks is waited for). "synchronize": waits for the device at each lap
    so_far  {phase: seconds} of an earlier part of the same training
    """

    def __init__(self, device, how, so_far=None):
        self.how, self.clock, self.spent, self.marks = how, clock_of(device), Counter(so_far), []

    def start(self):
        """Begin an epoch: what was before belongs to no phase."""
        self.clock.synchronize()
        self.marks = [(None, self.mark())] if self.how else []

    def __call__(self, phase):
        if self.how:
            self.marks.append((phase, self.mark()))

    def mark(self):
        if self.how == "events" and self.clock.event:
            event = self.clock.event()
            event.record()
            return event
        self.clock.synchronize()
        return self.clock.now()

    def stop(self):
        """End an epoch: book its laps. Returns {phase: seconds so far}; empty where nothing is timed."""
        self.clock.synchronize()
        for (_, before), (phase, after) in zip(self.marks, self.marks[1:], strict=False):
            self.spent[phase] += before.elapsed_time(after) / 1e3 if hasattr(before, "elapsed_time") else after - before
        self.marks = []
        return {phase: float(self.spent[phase]) for phase in PHASES} if self.how else {}
