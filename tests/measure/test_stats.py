"""Equation first (against brute force or worked by hand), then behaviour."""

import math

import numpy as np
import pytest

from labkit.measure import stats


def exactly_one_or_none_above(n, q):
    """P(at most one of n samples lies above the q quantile), summed term by term."""
    return sum(math.comb(n, k) * (1 - q) ** k * q ** (n - k) for k in (0, 1))


@pytest.mark.parametrize(("q", "floor"), [(0.5, 11), (0.9, 64), (0.95, 130), (0.99, 662)])
def test_a_quantile_s_floor_is_the_first_count_that_leaves_two_samples_above_it(q, floor):
    assert stats.quantile_floor(q) == floor
    assert exactly_one_or_none_above(floor, q) <= 0.01 < exactly_one_or_none_above(floor - 1, q)


def test_a_quantile_under_its_floor_is_refused_with_both_counts():
    value, reason = stats.quantile(np.arange(661.0), 0.99)
    assert value is None
    assert reason == "p99 needs 662 samples, there are 661"


def test_a_quantile_at_its_floor_is_numpy_s():
    samples = np.random.default_rng(0).exponential(size=662)
    assert stats.quantile(samples, 0.99) == (pytest.approx(np.quantile(samples, 0.99)), None)


@pytest.mark.parametrize("count", [31, 32, 101])
def test_the_bootstrap_of_the_median_agrees_with_resampling_by_hand(count):
    samples = np.random.default_rng(count).normal(10, 1, count)
    picks = np.random.default_rng(1).integers(0, count, (20_000, count))
    by_hand = np.quantile(np.median(samples[picks], axis=1), [0.025, 0.975])
    ours = stats.bootstrap_median(samples, draws=20_000)
    assert tuple(ours) == pytest.approx(by_hand, abs=0.08)


def test_the_bootstrap_interval_covers_the_true_median_about_95_times_of_100():
    random = np.random.default_rng(0)
    intervals = [stats.bootstrap_median(random.normal(0, 1, 61), seed=k) for k in range(800)]
    assert 0.93 <= np.mean([low <= 0 <= high for low, high in intervals]) <= 0.98


def test_the_order_statistic_interval_covers_the_true_median_about_95_times_of_100():
    random = np.random.default_rng(0)
    intervals = [stats.median_interval(random.exponential(size=101)) for _ in range(800)]
    assert 0.93 <= np.mean([low <= math.log(2) <= high for low, high in intervals]) <= 0.99


def test_the_interval_of_eleven_samples_is_worked_out_by_hand():
    # 11 / 2 -+ 0.98 sqrt(11) = 2.25 and 8.75: from the 2nd to the 10th of the ordered samples.
    samples = np.array([5, 1, 9, 3, 7, 11, 2, 8, 4, 10, 6])
    assert stats._effective_size(samples) == 11  # it swings to and fro, so nothing is taken off
    assert tuple(stats.median_interval(samples)) == (2, 10)


def test_an_autoregressive_series_is_worth_what_theory_says():
    random, r, n = np.random.default_rng(0), 0.8, 20_000
    series = np.zeros(n)
    for k in range(1, n):
        series[k] = r * series[k - 1] + random.standard_normal()
    assert stats._effective_size(series) == pytest.approx(n * (1 - r) / (1 + r), rel=0.1)


def test_spikes_do_not_hide_the_correlation_of_a_drifting_series():
    series = np.linspace(1, 2, 300)
    series[[50, 150, 250]] = 1000
    assert stats._effective_size(series) < 30


def test_independent_samples_keep_almost_their_whole_size():
    assert stats._effective_size(np.random.default_rng(0).normal(size=2000)) > 1800


def test_a_constant_series_has_no_spread_and_no_drift():
    same = np.ones(40)
    assert (stats.spread(same), stats.drift(same), stats._effective_size(same)) == (0, 0, 40)


def test_spread_is_the_interquartile_range_over_the_median_and_deaf_to_a_spike():
    assert stats.spread([1, 2, 3, 4, 5]) == pytest.approx(2 / 3)
    assert stats.spread([1, 2, 3, 4, 500]) == pytest.approx(2 / 3)


def test_drift_compares_the_last_third_with_the_first():
    assert stats.drift([1.0] * 10 + [1.5] * 10 + [2.0] * 10) == pytest.approx(1.0)
    assert stats.drift([1.0, 2.0, 3.0]) == 0


def test_warm_up_is_over_when_two_windows_agree():
    assert not stats.is_stable([1.0] * 9)
    assert stats.is_stable([9.0, 5.0] + [1.0] * 10)
    assert not stats.is_stable([2.0] * 5 + [1.0] * 5)


def test_the_interval_of_a_paired_difference_is_that_of_the_textbook():
    random = np.random.default_rng(0)
    before = random.random(10_000) < 0.9
    after = np.where(random.random(10_000) < 0.02, ~before, before)  # 2 % of the answers change
    difference = after.astype(float) - before
    low, high = stats.bootstrap_paired(before, after)
    error = difference.std() / 100
    assert (low, high) == pytest.approx((difference.mean() - 1.96 * error, difference.mean() + 1.96 * error), abs=3e-4)


def test_paired_answers_that_agree_differ_by_nothing():
    right = np.array([True, False, True])
    assert tuple(stats.bootstrap_paired(right, right)) == (0, 0)


def test_the_bootstrap_of_rounds_holds_the_true_line_and_narrows_with_the_noise():
    random, sizes, widths = np.random.default_rng(0), np.arange(1.0, 8.0), []
    for noise in (0.3, 0.03):
        samples = 2 + 5 * sizes[:, None] + noise * random.standard_normal((7, 25))
        found = stats.bootstrap_rounds(lambda medians: np.polyfit(sizes, medians, 1)[0], samples)
        assert found.low < 5 + noise / 10
        assert found.high > 5 - noise / 10
        widths.append(found.high - found.low)
    assert widths[1] < widths[0] / 3


def test_the_bootstrap_of_rounds_draws_the_same_rounds_of_all_samples():
    one = np.random.default_rng(0).normal(3, 1, (4, 21))
    found = stats.bootstrap_rounds(lambda a, b: (b - a).max(), one, one + 0.5)
    assert (found.low, found.median, found.high) == pytest.approx((0.5, 0.5, 0.5))
    assert found.samples == 21


def test_the_bootstrap_of_rounds_is_that_of_the_median_for_one_row():
    row = np.random.default_rng(2).normal(10, 1, 51)
    found = stats.bootstrap_rounds(lambda medians: medians[0], row[None], draws=4000)
    assert tuple(found) == pytest.approx(tuple(stats.bootstrap_median(row)), abs=0.06)
    assert found.median == np.median(row)


def test_an_interval_knows_how_many_samples_it_stands_on():
    series = np.arange(1.0, 11.0)
    for found in (stats.bootstrap_median(series), stats.median_interval(series)):
        assert (found.samples, found.median, found.enough) == (10, 5.5, False)
    assert stats.bootstrap_median(np.arange(11.0)).enough
    assert stats.bootstrap_paired([0, 0, 1], [1, 0, 1]).samples == 3


def test_a_scaled_interval_keeps_its_samples():
    found = 100 * stats.Interval(0.5, 1.5, samples=4, median=1.0) / 50
    assert found == stats.Interval(1.0, 3.0, samples=4, median=2.0)
    assert (100 * stats.Interval(0.5, 1.5, samples=4)).median is None
    assert tuple(-1 * stats.Interval(0.5, 1.5, samples=4)) == (-1.5, -0.5)


@pytest.mark.parametrize(("count", "quantile"), [(2, 12.706), (3, 4.303), (5, 2.776), (1001, 1.962)])
def test_the_interval_of_a_mean_reaches_student_s_t_standard_errors_to_both_sides(count, quantile):
    values = np.random.default_rng(0).normal(3, 1, count)
    found, error = stats.mean_interval(values), values.std(ddof=1) / math.sqrt(count)
    assert found.mean == found.median == pytest.approx(values.mean())
    assert (found.high - found.low) / 2 == pytest.approx(quantile * error, rel=1e-3)
    assert found.enough


def test_a_mean_ratio_is_geometric_and_its_interval_symmetric_around_it_in_factors():
    found = stats.mean_ratio([2.0, 8.0], [1.0, 1.0])
    assert found.median == pytest.approx(4)
    assert found.low * found.high == pytest.approx(16)
    assert found.samples == 2
    assert tuple(stats.mean_ratio([3.0, 6.0], [1.0, 2.0])) == pytest.approx((3, 3))


def test_a_single_value_allows_any_mean_and_decides_nothing():
    found = stats.mean_interval([5.0])
    assert tuple(found) == (-math.inf, math.inf)
    assert found.median == 5
    assert not found.enough
