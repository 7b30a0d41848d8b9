"""An interval of 95 % holds the truth 95 times of 100, or there is none: simulated, for 1 to 20
samples and more.
"""

import math

import numpy as np
import pytest

from labkit.measure import stats

TRIALS = 100
LEAST = 0.93 - 0.05  # two standard errors of a share of 100 trials below 93 %
SHAPES = {  # (samples, their true median, their true mean)
    "normal": (lambda random, n: random.normal(0, 1, n), 0, 0),
    "lognormal": (lambda random, n: random.lognormal(0, 1, n), 1, math.exp(0.5)),
    "tail": (lambda random, n: random.standard_t(2, n), 0, 0),  # its variance is infinite
}


def coverage(interval, truth, draw):
    """Share of the intervals that hold the truth; nan where there are none."""
    random = np.random.default_rng(0)
    found = [interval(draw(random)) for _ in range(TRIALS)]
    if not math.isfinite(found[0].high):
        assert all((low, high) == (-math.inf, math.inf) for low, high in found)
        return math.nan
    return np.mean([low <= truth <= high for low, high in found])


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("interval", [stats.median_interval, stats.median_of_rounds])
def test_an_interval_of_the_median_covers_from_six_samples_on_whatever_their_shape(interval, shape):
    draw, median, _ = SHAPES[shape]
    for n in range(1, 21):
        share = coverage(interval, median, lambda random, n=n: draw(random, n))
        assert math.isnan(share) if n < 6 else share >= LEAST, n


def exact_coverage(n):
    """P(the k-th smallest <= median <= the k-th largest of n), summed term by term."""
    k = stats._outer_rank(n)
    return sum(math.comb(n, below) for below in range(k, n - k + 1)) / 2**n


def test_the_ranks_around_the_median_are_the_innermost_that_hold_it_95_times_of_100():
    for n in range(6, 200):
        assert exact_coverage(n) >= 0.95
        k = stats._outer_rank(n) + 1
        assert sum(math.comb(n, below) for below in range(k, n - k + 1)) / 2**n < 0.95
    assert [stats._outer_rank(n) for n in range(6)] == [0] * 6


def test_student_s_t_covers_the_mean_of_a_bell_curve_from_three_values_on():
    for n in range(1, 21):
        share = coverage(stats.mean_interval, 5, lambda random, n=n: random.normal(5, 2, n))
        assert math.isnan(share) if n < 3 else share >= LEAST, n


def test_student_s_t_covers_the_factor_between_values_that_are_lognormal():
    def draw(random):
        return 3 * random.lognormal(0, 0.4, 3), random.lognormal(0, 0.4, 3)

    assert coverage(lambda pair: stats.mean_ratio(*pair), 3, draw) >= LEAST


@pytest.mark.parametrize("better", [0.5, 0.8, 1.0])
@pytest.mark.parametrize("changed", [0.005, 0.02, 0.05, 0.2, 0.5])
def test_a_paired_interval_covers_from_16_answers_on_however_few_of_them_change(changed, better):
    truth = changed * (2 * better - 1)
    changes = [changed * (1 - better), 1 - changed, changed * better]
    for n in [1, 8, *range(15, 21), 64, 300]:

        def draw(random, n=n):
            # half a point: each answer may get better or worse by one half
            before = np.full(n, 0.5)
            return before, before + random.choice([-0.5, 0, 0.5], n, p=changes)

        share = coverage(lambda pair: stats.bootstrap_paired(*pair, draws=400), truth / 2, draw)
        assert math.isnan(share) if n < 16 else share >= LEAST, n


@pytest.mark.parametrize("shape", SHAPES)
def test_the_bootstrap_of_rounds_covers_the_slope_of_a_fit_from_11_rounds_on(shape):
    draw, sizes = SHAPES[shape][0], np.arange(1.0, 8.0)
    slope = np.linalg.pinv(np.stack([np.ones(7), sizes], axis=1))[1]
    for rounds in (1, 10, 11, 20):

        def measured(random, rounds=rounds):
            return 5 * sizes[:, None] + draw(random, (7, rounds))

        share = coverage(
            lambda times: stats.bootstrap_rounds(lambda m: slope @ m, times, draws=80), 5, measured
        )
        assert math.isnan(share) if rounds < 11 else share >= LEAST, rounds


def test_quantiles_of_the_tail_keep_their_floors():
    assert (stats.samples_for_quantile(0.95), stats.samples_for_quantile(0.99)) == (130, 662)
