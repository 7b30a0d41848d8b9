"""The slow end of a series of times: its 95th percentile beside that of another series."""

from typing import Any

import numpy as np

from labkit.errors import MeasureError
from labkit.measure.stats import Interval, percentile_interval

RESAMPLES = 1000  # of the bootstrap


def ratio_of_p95(times: Any, reference_times: Any, floor_times: Any = None) -> Interval:
    """Return p95 of one series as a share of another's, an `Interval`; all in seconds, a round
    each.

    floor_times  of a call that computes nothing: their median is taken from both p95, which are at
                 least 0 then. MeasureError where nothing of the reference's p95 is left

    The resamples keep the rounds whole, so that what slowed all down in one round does so in the
    resample too.
    """
    rounds = len(times)
    if floor_times is None:
        floor_times = np.zeros(rounds)
    series = np.array([times, reference_times, floor_times])
    picks = np.random.default_rng(0).integers(0, rounds, (RESAMPLES, rounds))

    def above_floor(series):
        p95, reference_p95 = np.quantile(series[:2], 0.95, axis=-1)
        floor = np.median(series[2], axis=-1)
        return np.maximum(p95 - floor, 0), np.maximum(reference_p95 - floor, 0)

    measured, reference_measured = above_floor(series)
    if reference_measured == 0:
        raise MeasureError(
            "Too noisy to judge: a call that computes nothing takes as long as the reference's."
        )
    p95, reference_p95 = above_floor(series[:, picks])
    # such a resample is a share without end
    shares = p95 / np.maximum(reference_p95, np.finfo(float).tiny)
    return percentile_interval(shares, rounds, measured / reference_measured)
