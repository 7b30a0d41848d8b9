"""The clock that times one call, and the plan that says how long to go on: every measurement is given both."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

from labkit import device as devices
from labkit import ledger
from labkit.measure.noise import read_usage
from labkit.measure.stats import FEWEST_OF_MEDIAN

SHORTEST_S = 0.3  # the counters of other processes' load say nothing of a shorter time


@dataclass(frozen=True)
class Plan:
    """How a measurement is done.

    seconds      time budget of the timed calls; a measurement ends here even when it is not precise yet (but not before
                 the 6 calls that the interval of a median needs)
    precision    end earlier, but not before 0.3 s, once the 95 % interval is this narrow: half-width over the value
    min_samples  at least so many samples (130 is what a p95 needs, 662 a p99), if the seconds allow
    max_samples  and never more than this
    seed         of the random order
    """

    seconds: float = 3.0
    precision: float = 0.005
    min_samples: int = 130
    max_samples: int = 10_000
    seed: int = 0

    def repeat(self, once, clock, *, width_of, first_check, fewest):
        """[once(0), once(1), ...] until their interval is narrow enough or the time is over.

        width_of     of what `once` returned so far -> half-width over the value; it is asked ever more seldom
        first_check  so many are there when it is asked first
        fewest       so many are made even when the time is over, if twice the time allows; 6 in any case
        """
        found, begin = [], clock.now()
        while len(found) < self.max_samples:
            found.append(once(len(found)))
            precise = False
            if len(found) >= first_check:
                precise = width_of(found) <= self.precision
                first_check = math.ceil(1.4 * first_check)
            spent = clock.now() - begin
            needed = FEWEST_OF_MEDIAN if spent >= 2 * self.seconds else fewest
            if len(found) >= needed and (spent >= self.seconds or (precise and spent >= SHORTEST_S)):
                break
        return found


@dataclass(frozen=True)
class Clock:
    """A device's time: what `latency` and `compare` use in place of the real machine.

    device       what it is called in the rows
    now          () -> seconds
    synchronize  () -> None; returns when the device has finished all it was asked to do
    event        () -> a marker with record() and elapsed_time(other) in ms, where the device keeps its own clock
    usage        () -> `noise.Usage`: what the machine has been busy with so far
    reset_peak, peak_bytes  start a window of the allocator's peak; read it, None where there is no such counter
    computed     () -> seconds that this thread has computed, without waiting; None where it says nothing (GPUs)
    """

    device: str = "cpu"
    now: Callable = time.perf_counter
    synchronize: Callable = lambda: None
    event: Callable | None = None
    usage: Callable = read_usage
    reset_peak: Callable = lambda: None
    peak_bytes: Callable = lambda: None
    computed: Callable | None = None

    def time(self, fn, args=(), *, calls=1):
        """(seconds a call, output of the last): from an idle device to an idle device."""
        if self.event is not None:
            return self._time_by_events(fn, args, calls)
        begin = self.now()
        for _ in range(calls):
            output = fn(*args)
        self.synchronize()
        return float(self.now() - begin) / calls, output

    def _time_by_events(self, fn, args, calls):
        start, end = self.event(), self.event()
        start.record()
        for _ in range(calls):
            output = fn(*args)
        end.record()
        self.synchronize()
        return start.elapsed_time(end) / 1e3 / calls, output


def clock_of(device=None):
    """The clock of a device (a name, a `torch.device`, None for the best there is); a `Clock` is taken as it is."""
    if isinstance(device, Clock):
        return device
    device = devices.pick(device)
    return Clock(
        device=str(device),
        synchronize=devices.waiter(device),
        event=devices.event_maker(device),
        usage=lambda: read_usage(device),
        reset_peak=lambda: devices.reset_peak_memory(device),
        peak_bytes=lambda: devices.peak_memory_bytes(device),
        computed=time.thread_time if device.type == "cpu" else None,
    )


def as_calls(inputs):
    """Rotating inputs as a list of argument tuples: None is one call without arguments, a tensor one argument."""
    if inputs is None:
        return [()]
    if hasattr(inputs, "shape"):
        inputs = [inputs]
    return [entry if isinstance(entry, tuple) else (entry,) for entry in inputs]


def provenance(clock):
    """The origin of a row: device, threads, machine, source and time."""
    real = devices.kind(clock.device) in devices.kinds()
    return {
        "device": clock.device,
        "threads": devices.threads() if real else None,
        "machine_key": devices.describe().machine_key if real else None,
        "commit": devices.commit(),
        "measured_utc": ledger.now(),
    }
