"""Compare the slow ends of two series of times: their 95th percentiles (p95)."""

from typing import Any

import numpy as np

from labkit.errors import MeasureError
from labkit.measure.stats import Interval, percentile_interval

RESAMPLES = 1000  # of the bootstrap


def ratio_of_p95(times: Any, reference_times: Any, overhead_times: Any = None) -> Interval:
    """Return the p95 of one series of times divided by the p95 of another, as an `Interval`.

    times, reference_times  (rounds,) seconds, measured in the same rounds
    overhead_times          (rounds,) seconds of a call that computes nothing. Their median is
                            subtracted from both p95; a negative result becomes 0. None: nothing is
                            subtracted
    Raises                  MeasureError: the reference's p95 is not longer than the overhead

    The bootstrap draws whole rounds: if a disturbance made all times of one round longer, they are
    drawn together.
    """
    rounds = len(times)
    if overhead_times is None:
        overhead_times = np.zeros(rounds)
    series = np.array([times, reference_times, overhead_times])
    picks = np.random.default_rng(0).integers(0, rounds, (RESAMPLES, rounds))

    def without_overhead(series):
        p95, reference_p95 = np.quantile(series[:2], 0.95, axis=-1)
        overhead = np.median(series[2], axis=-1)
        return np.maximum(p95 - overhead, 0), np.maximum(reference_p95 - overhead, 0)

    measured, reference_measured = without_overhead(series)
    if reference_measured == 0:
        raise MeasureError(
            "Too noisy to judge: a call that computes nothing takes as long as the reference's."
        )
    p95, reference_p95 = without_overhead(series[:, picks])
    # where nothing of the reference's p95 is left, the ratio is very large instead of infinite
    shares = p95 / np.maximum(reference_p95, np.finfo(float).tiny)
    return percentile_interval(shares, rounds, measured / reference_measured)
