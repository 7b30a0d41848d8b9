"""How long does a call take, once everything is warm?"""

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from labkit.ledger.rows import Latency
from labkit.measure.clock import Plan, as_calls, clock_of, provenance
from labkit.measure.noise import noise_of
from labkit.measure.stats import FEWEST, FEWEST_OF_MEDIAN, Interval, is_stable, median_interval, quantile

if TYPE_CHECKING:
    import torch

SHORTEST_S = 20e-6  # calls shorter than this are timed in groups: reading the clock costs 0.1 µs
WARMUP_SHARE = 0.3  # of the time budget


def latency(
    fn: Callable,
    *,
    device: "torch.device | None" = None,
    inputs: Sequence | None = None,
    batch: int = 1,
    plan: Plan | None = None,
) -> Latency:
    """Time `fn()`, or `fn(*input)` over rotating inputs: a `rows.Latency`.

    device   a device, or a `Clock` to measure with
    inputs   a list of inputs (each a tensor or a tuple of arguments), taken in turn; None: no arguments
    batch    items that a call works on
    plan     `Plan(seconds=..., precision=...)`

    The first call is kept apart (cold start). Warm-up ends when the medians of two successive windows of 5 calls
    agree within 5 %, or after 30 % of the seconds (then `warm` is False). Calls are timed until the 95 % interval of
    the median is as narrow as the plan asks; 6 of them, which this interval needs, also where the seconds are over.
    p95 and p99 stay None, with a reason, under 130 and 662 samples.
    """
    clock = clock_of(device)
    plan = plan or Plan()
    calls = as_calls(inputs)
    before = clock.usage()
    cold, _ = clock.time(fn, calls[0])
    warmup, warm = warm_up(clock, fn, calls, plan)
    group = max(1, math.ceil(SHORTEST_S / max(float(np.median(warmup)), 1e-9)))
    clock.reset_peak()
    samples = plan.repeat(
        lambda place: clock.time(fn, calls[place % len(calls)], calls=group)[0],
        clock,
        width_of=_width,
        first_check=max(FEWEST, plan.min_samples),
        fewest=FEWEST_OF_MEDIAN,
    )
    noise = noise_of(before, clock.usage(), samples)
    return Latency(
        **provenance(clock),
        **_timings(samples, batch, group),
        cold_ms=1e3 * cold,
        warmup_calls=len(warmup),
        warm=warm,
        peak_bytes=clock.peak_bytes(),
        noisy=noise.noisy,
        noise=noise.why,
    )


def times_as_long(slow: Latency, fast: Latency, *, items: bool = False) -> Interval:
    """How many times as long `slow` takes as `fast`: an `Interval` from the ends of those of two `rows.Latency`.

    items  count the time of one item, not of one call. For a difference of a few percent use `compare`.
    """
    share = fast.batch / slow.batch if items else 1
    samples = min(len(slow.samples_ms), len(fast.samples_ms))
    low, high = -math.inf, math.inf
    if samples >= FEWEST_OF_MEDIAN:
        low, high = slow.low_ms / fast.high_ms, slow.high_ms / fast.low_ms  # type: ignore[operator]
    return share * Interval(low, high, samples, slow.p50_ms / fast.p50_ms)  # type: ignore[operator]


def warm_up(clock, fn, calls, plan):
    """(seconds of each warm-up call, whether they became stable)."""
    seconds, begin = [], clock.now()
    while not is_stable(seconds):
        if seconds and clock.now() - begin > WARMUP_SHARE * plan.seconds:
            return seconds, False
        seconds.append(clock.time(fn, calls[len(seconds) % len(calls)])[0])
    return seconds, True


def _width(samples):
    """Half the interval of the median, over the median."""
    found = median_interval(samples)
    return (found.high - found.low) / 2 / found.median


def _timings(samples, batch, group):
    """The fields of a `Latency` that follow from its samples (seconds a call)."""
    ms = 1e3 * np.array(samples)
    low, high = (end if math.isfinite(end) else None for end in median_interval(ms))
    (p95, no95), (p99, no99) = quantile(ms, 0.95), quantile(ms, 0.99)
    if group > 1:
        p95 = p99 = None
        no99 = f"p95 and p99 need single calls; a sample is the mean of {group} calls, too short to be timed one by one"
    return {
        "batch": batch,
        "p50_ms": float(np.median(ms)),
        "low_ms": low,
        "high_ms": high,
        "p95_ms": p95,
        "p99_ms": p99,
        "tail_reason": no95 or no99,
        "throughput_per_s": 1e3 * batch / float(ms.mean()),  # the mean, not the median: late calls count
        "samples_ms": tuple(ms.round(6).tolist()),
        "calls_per_sample": group,
    }
