"""The slow end of a series of times beside another's."""

import numpy as np
import pytest

from labkit.errors import MeasureError
from labkit.measure.tails import ratio_of_p95


def test_a_ratio_of_percentiles_is_that_of_the_samples():
    slow = [2.0 + 0.01 * (number % 7) for number in range(200)]
    fast = [seconds / 4 for seconds in slow]
    low, high = found = ratio_of_p95(fast, slow)
    assert found.median == pytest.approx(0.25)
    assert low <= found.median <= high
    assert high - low < 0.02


def test_the_floor_of_a_call_is_taken_from_both_before_the_ratio():
    """Half of the work is half of the time, however long a call takes to begin."""
    work = np.array([2.0 + 0.01 * (number % 7) for number in range(200)])
    for floor in (0.0, 0.5, 10.0):
        latency = ratio_of_p95(floor + work / 2, floor + work, np.full(200, floor))
        assert latency.median == pytest.approx(0.5)
        assert latency.high - latency.low < 0.02


def test_a_file_below_the_floor_is_at_zero_and_a_reference_below_it_is_too_noisy():
    assert ratio_of_p95([0.9] * 20, [2.0] * 20, [1.0] * 20).median == 0
    with pytest.raises(MeasureError, match="Too noisy"):
        ratio_of_p95([2.0] * 20, [0.9] * 20, [1.0] * 20)
