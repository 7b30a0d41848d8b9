"""Time a call with the clock of a device, and decide how many calls are timed."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from labkit import device as devices
from labkit import ledger
from labkit.measure.noise import read_usage
from labkit.measure.stats import MIN_SAMPLES_OF_MEDIAN

# shorter measurements end before the counters of other processes' load have moved
MIN_MEASUREMENT_S = 0.3
WARMUP_SHARE = 0.3  # of the time budget


@dataclass(frozen=True)
class Plan:
    """Time budget and precision of a measurement.

    seconds      time budget of the timed calls. A measurement may exceed the budget to take the
                 samples that its result needs: `latency` 6 samples, `compare` 11 rounds
    precision    stop before the budget is spent when the result is this precise: half the width of
                 the 95 % interval, divided by the value. Such a stop comes after 0.3 s at the
                 earliest
    min_samples  for `latency`: take at least this many samples, if the budget allows. The p95 needs
                 130 samples, the p99 needs 662
    max_samples  take at most this many samples
    seed         seed of the random order of the arms
    """

    seconds: float = 3.0
    precision: float = 0.005
    min_samples: int = 130
    max_samples: int = 10_000
    seed: int = 0


def sample_until_precise(plan, clock, take_sample, *, relative_width, first_check, min_samples):
    """Take samples until the result is precise enough or the budget is spent. Returns their list.

    `take_sample(0)`, `take_sample(1)`, ... are called in succession.

    plan            the `Plan` with the budget and the precision
    clock           the `Clock` that measures how much of the budget is spent
    take_sample     function (sample number) -> sample
    relative_width  function (list of samples) -> half the width of the 95 % interval, divided by
                    the value. The result is precise enough when this number is at most
                    `plan.precision`
    first_check     number of samples at which the width is computed for the first time
    min_samples     number of samples to take even if the budget is exceeded. Once twice the budget
                    is spent, six samples are enough
    """
    samples = []
    next_check = first_check
    start = clock.now()
    while len(samples) < plan.max_samples:
        samples.append(take_sample(len(samples)))

        # Computing the width sorts all samples, so the checks become rarer as the samples become
        # more.
        precise = False
        if len(samples) >= next_check:
            precise = relative_width(samples) <= plan.precision
            next_check = math.ceil(1.4 * next_check)

        # Stop when the budget is spent, or when the result is precise and the load counters had
        # time to move.
        elapsed = clock.now() - start
        out_of_time = elapsed >= plan.seconds
        if elapsed >= 2 * plan.seconds:
            min_samples = MIN_SAMPLES_OF_MEDIAN
        if len(samples) >= min_samples and (
            out_of_time or (precise and elapsed >= MIN_MEASUREMENT_S)
        ):
            break
    return samples


@dataclass(frozen=True)
class Clock:
    """Clock and counters of a device. `latency` and `compare` accept a `Clock` as their `device`.

    device       name of the device, as it is written into the ledger
    now          function () -> seconds
    synchronize  function () -> None; returns when the device has finished all its work
    event        function () -> marker with record() and elapsed_time(end) in ms, for devices with a
                 clock of their own; None: `now` is read
    usage        function () -> `noise.Usage`, the counters of the machine
    reset_peak   function () -> None; resets the peak of the memory allocator
    peak_bytes   function () -> bytes at the peak since the reset; None without such a counter
    computed     function () -> seconds for which this thread has had a core, without the time that
                 it waited or slept; None for GPUs
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
        """Time `calls` successive calls of `fn(*args)`.

        Returns (seconds per call, output of the last call). The time ends when the device has
        finished its work. The device must be idle before the first call.
        """
        # With events, the device itself takes the times.
        if self.event is not None:
            start = self.event()
            end = self.event()
            start.record()
            for _ in range(calls):
                output = fn(*args)
            end.record()
            self.synchronize()
            return start.elapsed_time(end) / 1e3 / calls, output

        # Otherwise the CPU's clock is read before the first call and after the device has finished.
        start = self.now()
        for _ in range(calls):
            output = fn(*args)
        self.synchronize()
        return float(self.now() - start) / calls, output


def warm_up(clock, fn, calls, plan):
    """Call `fn` until its time is stable, or until 30 % of the budget is spent.

    calls    list of argument tuples, used in rotation
    plan     the `Plan` with the budget
    returns  (list of seconds per call, True if the time became stable)
    """
    seconds = []
    start = clock.now()
    while not is_stable(seconds):
        if seconds and clock.now() - start > WARMUP_SHARE * plan.seconds:
            return seconds, False
        arguments = calls[len(seconds) % len(calls)]
        call_s, _ = clock.time(fn, arguments)
        seconds.append(call_s)
    return seconds, True


def is_stable(samples):
    """Return True if the last two windows of 5 calls have medians within 5 %: the warm-up rule.

    samples  list of seconds per call; fewer than 10 are never stable
    """
    if len(samples) < 10:
        return False
    previous = np.median(samples[-10:-5])
    latest = np.median(samples[-5:])
    return bool(abs(latest - previous) <= 0.05 * previous)


def group_size(call_s, min_sample_s):
    """Return how many calls of `call_s` seconds together last at least `min_sample_s` seconds."""
    call_s = max(float(call_s), 1e-9)  # a clock with coarse ticks may have measured 0
    return max(1, math.ceil(min_sample_s / call_s))


def clock_of(device=None):
    """Return the `Clock` of a device.

    device  a name, a `torch.device`, or None for the best device here; a `Clock` is returned
            unchanged
    """
    if isinstance(device, Clock):
        return device
    device = devices.pick(device)
    computed = time.thread_time if device.type == "cpu" else None
    return Clock(
        device=str(device),
        synchronize=devices.waiter(device),
        event=devices.event_maker(device),
        usage=lambda: read_usage(device),
        reset_peak=lambda: devices.reset_peak_memory(device),
        peak_bytes=lambda: devices.peak_memory_bytes(device),
        computed=computed,
    )


def as_calls(inputs):
    """Return the inputs of a measurement as a list of argument tuples, one for each call.

    inputs  a list with one entry per call, each a tensor or a tuple of arguments. A single tensor
            stands for one call with this argument, None for one call without arguments
    """
    if inputs is None:
        return [()]
    if hasattr(inputs, "shape"):
        inputs = [inputs]
    calls = []
    for arguments in inputs:
        if not isinstance(arguments, tuple):
            arguments = (arguments,)
        calls.append(arguments)
    return calls


def provenance(clock):
    """Return the fields of a ledger row that say where and when the row was measured.

    The fields are device, threads, machine_key, commit and measured_utc.

    clock  the `Clock` that the row is measured with
    """
    fields = {
        "device": clock.device,
        "threads": None,
        "machine_key": None,
        "commit": devices.commit(),
        "measured_utc": ledger.now(),
    }
    # A simulated machine has neither threads nor a row in the table of machines.
    if devices.kind(clock.device) in devices.kinds():
        fields["threads"] = devices.threads()
        fields["machine_key"] = devices.describe().machine_key
    return fields
