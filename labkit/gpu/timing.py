"""Time functions on the clock of the device: medians with intervals, one by one or in turn."""

import math
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch

SEED = 0  # decides the order of the arms
MIN_SAMPLES = 6  # the smallest and the largest of 6 samples enclose the median 95 times of 100
MIN_PAIRS = 11  # with fewer pairs of times there is no verdict on a ratio
NULL_ARM = "the first arm again"


class Timing(NamedTuple):
    """A median with its 95 % interval.

    median     the median of the samples
    low, high  ends of the interval; None if there are fewer than `MIN_SAMPLES` samples
    samples    number of samples
    """

    median: float
    low: float | None
    high: float | None
    samples: int


def interval(samples: Any) -> Timing:
    """Return the median of independent samples and its 95 % interval, as a `Timing`.

    The interval reaches from the k-th smallest to the k-th largest of n samples. It misses the true
    median only if fewer than k samples lie on one side of it. On each side this has the probability
    P(Binomial(n, 1/2) < k). k is the largest number for which this is at most 2.5 %.

    samples  the numbers, in any unit
    """
    ordered = np.sort(np.asarray(samples, float))
    n = len(ordered)
    median = float(np.median(ordered))
    if n < MIN_SAMPLES:
        return Timing(median, None, None, n)
    rank = 0
    cases = 0  # of the 2^n, those with fewer than `rank` samples below the median
    while cases + math.comb(n, rank) <= 0.025 * 2**n:
        cases += math.comb(n, rank)
        rank += 1
    return Timing(median, float(ordered[rank - 1]), float(ordered[-rank]), n)


class Stopwatch:
    """Times calls on a device: by CUDA events on a GPU, by the CPU's clock elsewhere."""

    def __init__(self, device: torch.device):
        self.on_gpu = device.type == "cuda"

    def __call__(self, call: Callable, calls: int = 1) -> float:
        """Call a function several times, and return the milliseconds per call.

        The device is idle before the first call and after the last. From one call to the next, the
        CPU does not wait for the device.

        call   function ()
        calls  number of calls
        """
        self.wait()
        if self.on_gpu:
            first = torch.cuda.Event(enable_timing=True)
            last = torch.cuda.Event(enable_timing=True)
            first.record()
            for _ in range(calls):
                call()
            last.record()
            last.synchronize()
            return first.elapsed_time(last) / calls
        start = time.perf_counter()
        for _ in range(calls):
            call()
        return 1e3 * (time.perf_counter() - start) / calls

    def wait(self):
        """Wait until the device has finished all its work."""
        if self.on_gpu:
            torch.cuda.synchronize()


def repeated(
    stopwatch: Stopwatch, call: Callable, *, seconds: float, calls: int = 1
) -> list[float]:
    """Time a function repeatedly for some seconds. Returns the samples, a list of ms per call.

    There are 3 to 100 samples.

    call   function ()
    calls  number of calls that are timed together as one sample
    """
    samples: list[float] = []
    end = time.monotonic() + seconds
    while len(samples) < 3 or (time.monotonic() < end and len(samples) < 100):
        samples.append(stopwatch(call, calls))
    return samples


def race(stopwatch: Stopwatch, arms: dict, *, end: float, rounds: int = 200) -> tuple[dict, dict]:
    """Time several arms in turn, so that a change in the machine's speed affects all alike.

    In each round each arm is timed once, in random order. The first arm is timed twice: its second
    timing has the name `NULL_ARM`, and shows how far two equal arms differ.

    arms     {name: (function (), number of calls that are timed together as one sample)}
    end      deadline on the clock of `time.monotonic`
    rounds   largest number of rounds
    Returns  ({name: milliseconds per call, one for each round}, {name: error}). An arm that raises
             an error takes no further part, and is only in the second dictionary
    """
    first = next(iter(arms))
    generator = np.random.default_rng(SEED)
    running = {**arms, NULL_ARM: arms[first]}
    failed: dict = {}
    times: dict = {name: [] for name in running}
    while time.monotonic() < end and len(times[NULL_ARM]) < rounds and first not in failed:
        names = list(running)
        for index in generator.permutation(len(names)):
            name = names[index]
            try:
                times[name].append(stopwatch(*running[name]))
            except Exception as error:  # out of memory, say: the others go on
                failed[name] = error
                running.pop(name)

    # Only rounds that all of them finished count.
    complete = min((len(times[name]) for name in running), default=0)
    return {name: np.array(times[name][:complete]) for name in running}, failed


def verdict(low: float, high: float, floor: float, pairs: int) -> str:
    """Return "faster", "slower", "not distinguishable" or "too few pairs" for a ratio.

    The ratio is the time of the baseline over the time of the arm.

    low, high  ends of the ratio's 95 % interval
    floor      noise floor: how far from 1 the interval reaches if an arm is compared with itself
    pairs      number of rounds
    """
    if pairs < MIN_PAIRS:
        return "too few pairs"
    if low > 1 + floor:
        return "faster"
    return "slower" if high < 1 / (1 + floor) else "not distinguishable"
