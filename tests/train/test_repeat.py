"""Trainings repeated over seeds: pairs by seed, shares of a gap with an interval that covers."""

import math
from types import SimpleNamespace

import numpy as np
import pytest

from labkit.errors import LabError
from labkit.train.repeat import repeat, share


def made_up(seed, shift=0.0):
    return SimpleNamespace(accuracy=70 + seed % 5 + shift, losses=[2.0, 1.0 + seed])


def test_each_seed_is_trained_once_with_the_settings():
    calls = []

    def train(seed, batch):
        calls.append((seed, batch))
        return made_up(seed)

    runs = repeat(train, iter(range(3)), batch=16)
    assert calls == [(0, 16), (1, 16), (2, 16)]
    assert isinstance(runs, list)
    assert runs.seeds == (0, 1, 2)
    assert runs.accuracy.tolist() == [70, 71, 72]
    assert runs.losses.tolist() == [[2, 1], [2, 2], [2, 3]]


def test_a_difference_pairs_trainings_by_seed_wherever_they_stand():
    many, few = repeat(made_up, range(10), shift=0.5), repeat(made_up, [8, 3])
    assert (many - few).tolist() == [0.5, 0.5]
    assert (few - many).tolist() == [-0.5, -0.5]
    assert many.lead(few).mean == 0.5
    assert many.lead(few).samples == 2


def test_settings_without_a_common_seed_are_refused():
    with pytest.raises(LabError, match="no seed in common"):
        repeat(made_up, range(3)) - repeat(made_up, range(5, 9))


def test_a_share_is_the_ratio_of_the_means_in_percent():
    interval = share(np.array([1.0, 2.0, 3.0]), np.array([4.0, 4.0, 4.1]))
    assert interval.mean == pytest.approx(100 * 6 / 12.1)
    assert interval.low < interval.mean < interval.high
    assert interval.method == "t"


def test_at_the_ends_of_a_share_part_minus_ratio_times_whole_is_just_not_distinguishable_from_0():
    """The definition of Fieller's interval, against scipy's own t-test."""
    from scipy.stats import ttest_1samp

    rng = np.random.default_rng(1)
    whole = 3 + rng.normal(size=12)
    part = 0.5 * whole + rng.normal(size=12)
    for end in share(part, whole):
        assert ttest_1samp(part - end / 100 * whole, 0).pvalue == pytest.approx(0.05, abs=1e-6)


def test_a_share_of_a_gap_that_may_be_0_cannot_be_told():
    interval = share([1.0, 2.0, 3.0, 1.0], [2.0, -1.0, 1.0, -1.0])
    assert (interval.low, interval.high) == (-math.inf, math.inf)
    assert not interval.enough  # a claim on it is inconclusive


def test_two_pairs_decide_nothing_and_unequal_numbers_are_refused():
    assert share([1.0, 2.0], [3.0, 4.0]).high == math.inf
    with pytest.raises(LabError, match="pairs"):
        share([1.0, 2.0, 3.0], [3.0, 4.0])


@pytest.mark.slow
def test_the_interval_of_a_share_covers_the_truth_95_times_of_100():
    rng = np.random.default_rng(0)
    hits = 0
    for _ in range(2000):
        common = rng.normal(size=12)
        whole = 0.43 + 0.25 * common + 0.2 * rng.normal(size=12)
        part = 0.6 * 0.43 + 0.2 * common + 0.2 * rng.normal(size=12)
        low, high = share(part, whole)
        hits += low <= 60 <= high
    assert 0.935 <= hits / 2000 <= 0.965
