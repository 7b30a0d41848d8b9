"""Where the seconds of training go: a stopwatch with laps that knows a device works through a queue."""

from labkit.measure import clock_of

PHASES = ("data", "forward", "backward", "optimizer")


class Laps:
    """A stopwatch: `lap("forward")` books the time since the last lap under "forward".

    device  a device, or a `measure.Clock`
    how     None: books nothing. "events": marks in the device's own queue, read when the epoch is over; training goes
            on undisturbed (a device without such marks is waited for). "synchronize": waits for the device at each lap
    """

    def __init__(self, device, how):
        self.how, self.clock, self.marks = how, clock_of(device), []

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
        """End an epoch: {phase: its seconds}; empty where nothing is timed."""
        self.clock.synchronize()
        spent = dict.fromkeys(PHASES, 0.0) if self.how else {}
        for (_, before), (phase, after) in zip(self.marks, self.marks[1:], strict=False):
            spent[phase] += before.elapsed_time(after) / 1e3 if hasattr(before, "elapsed_time") else after - before
        return {phase: float(seconds) for phase, seconds in spent.items()}
