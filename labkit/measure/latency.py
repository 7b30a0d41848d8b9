"""Measure how long a call takes, once everything is warm."""

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from labkit.ledger.rows import Latency
from labkit.measure.clock import (
    Plan,
    as_calls,
    clock_of,
    group_size,
    provenance,
    sample_until_precise,
    warm_up,
)
from labkit.measure.noise import noise_of
from labkit.measure.stats import (
    MIN_SAMPLES_OF_MEDIAN,
    MIN_SAMPLES_TO_DECIDE,
    Interval,
    median_interval,
    quantile,
)

if TYPE_CHECKING:
    import torch

MIN_SAMPLE_S = 20e-6  # shorter calls are timed in groups, because reading the clock costs 0.1 µs


def latency(
    fn: Callable,
    *,
    device: "torch.device | None" = None,
    inputs: Sequence | None = None,
    batch: int = 1,
    plan: Plan | None = None,
) -> Latency:
    """Time `fn()`, or `fn(*input)` over rotating inputs. Returns a `rows.Latency`.

    device   a device, or a `Clock` to measure with
    inputs   a list of inputs, each a tensor or a tuple of arguments, used in turn; None: no
             arguments
    batch    number of items that a call works on
    plan     `Plan(seconds=..., precision=...)`

    The first call may compile or read files. Its time is `cold_ms` of the row and counts nowhere
    else.

    The warm-up ends when the medians of two successive windows of 5 calls agree within 5 %. It also
    ends after 30 % of the budget; `warm` of the row is then False.

    After the warm-up, calls are timed until half the width of the median's 95 % interval is at most
    `plan.precision` of the median, or the budget is spent. At least six calls are timed.

    With fewer than 130 samples `p95_ms` is None, with fewer than 662 `p99_ms` is None;
    `tail_reason` then says why.
    """
    clock = clock_of(device)
    plan = plan or Plan()
    calls = as_calls(inputs)

    # The first call may compile, allocate or read a file: its time is kept apart.
    cold_s, _ = clock.time(fn, calls[0])

    # Warm up, and count how many of these calls make a sample that is long enough for the clock.
    warmup_s, warm = warm_up(clock, fn, calls, plan)
    calls_per_sample = group_size(np.median(warmup_s), MIN_SAMPLE_S)

    def take_sample(number):
        arguments = calls[number % len(calls)]
        seconds, _ = clock.time(fn, arguments, calls=calls_per_sample)
        return seconds

    # Time calls until the median is precise enough. The noise is that of this window: the first
    # call may have started compilers, which would count as other processes.
    clock.reset_peak()
    usage_before = clock.usage()
    samples_s = sample_until_precise(
        plan,
        clock,
        take_sample,
        relative_width=_relative_width,
        first_check=max(MIN_SAMPLES_TO_DECIDE, plan.min_samples),
        min_samples=MIN_SAMPLES_OF_MEDIAN,
    )
    noise = noise_of(usage_before, clock.usage(), samples_s)
    return Latency(
        **provenance(clock),
        **_statistics(samples_s, batch, calls_per_sample),
        cold_ms=1e3 * cold_s,
        warmup_calls=len(warmup_s),
        warm=warm,
        peak_bytes=clock.peak_bytes(),
        noisy=noise.noisy,
        noise=noise.why,
    )


def times_as_long(slow: Latency, fast: Latency, *, items: bool = False) -> Interval:
    """Return how many times as long `slow` takes as `fast`, as an `Interval`.

    items  True: compare the times per item; False: compare the times per call

    The interval contains every ratio of two times that lie in the intervals of `slow` and `fast`.
    Therefore it is wide. To find a difference of a few percent, use `compare`.
    """
    samples = min(len(slow.samples_ms), len(fast.samples_ms))
    if samples >= MIN_SAMPLES_OF_MEDIAN:
        low = slow.low_ms / fast.high_ms  # type: ignore[operator]
        high = slow.high_ms / fast.low_ms  # type: ignore[operator]
    else:
        low = -math.inf
        high = math.inf
    ratio = Interval(low, high, samples, slow.p50_ms / fast.p50_ms)  # type: ignore[operator]
    if items:
        return fast.batch / slow.batch * ratio
    return ratio


def _relative_width(samples):
    """Return half the width of the median's interval, divided by the median."""
    interval = median_interval(samples)
    return (interval.high - interval.low) / 2 / interval.median


def _statistics(samples_s, batch, calls_per_sample):
    """Return the fields of a `Latency` that are computed from the samples (seconds per call)."""
    samples_ms = 1e3 * np.array(samples_s)
    interval = median_interval(samples_ms)
    p95, p95_reason = quantile(samples_ms, 0.95)
    p99, p99_reason = quantile(samples_ms, 0.99)

    # The mean of a group hides its slowest call, so there is no tail to report.
    if calls_per_sample > 1:
        p95 = None
        p99 = None
        p99_reason = (
            f"p95 and p99 need single calls; a sample is the mean of {calls_per_sample} calls, "
            "too short to be timed one by one"
        )

    low_ms = None
    high_ms = None
    if math.isfinite(interval.high - interval.low):
        low_ms = interval.low
        high_ms = interval.high
    return {
        "batch": batch,
        "p50_ms": float(np.median(samples_ms)),
        "low_ms": low_ms,
        "high_ms": high_ms,
        "p95_ms": p95,
        "p99_ms": p99,
        "tail_reason": p95_reason or p99_reason,
        # from the mean, so that slow calls count
        "throughput_per_s": 1e3 * batch / float(samples_ms.mean()),
        "samples_ms": tuple(samples_ms.round(6).tolist()),
        "calls_per_sample": calls_per_sample,
    }
