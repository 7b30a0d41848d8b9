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
    assert stats.samples_for_quantile(q) == floor
    assert exactly_one_or_none_above(floor, q) <= 0.01 < exactly_one_or_none_above(floor - 1, q)


def test_a_quantile_under_its_floor_is_refused_with_both_counts():
    value, reason = stats.quantile(np.arange(661.0), 0.99)
    assert value is None
    assert reason == "p99 needs 662 samples, there are 661"


def test_a_quantile_at_its_floor_is_numpy_s():
    samples = np.random.default_rng(0).exponential(size=662)
    assert stats.quantile(samples, 0.99) == (pytest.approx(np.quantile(samples, 0.99)), None)


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


def test_a_constant_series_is_worth_all_its_samples():
    assert stats._effective_size(np.ones(40)) == 40


def test_the_interval_of_a_paired_difference_is_that_of_the_textbook():
    random = np.random.default_rng(0)
    before = random.random(10_000) < 0.9
    after = np.where(random.random(10_000) < 0.02, ~before, before)  # 2 % of the answers change
    difference = after.astype(float) - before
    low, high = stats.bootstrap_paired(before, after)
    error = difference.std() / 100
    assert (low, high) == pytest.approx(
        (difference.mean() - 1.96 * error, difference.mean() + 1.96 * error), abs=3e-4
    )


def test_answers_that_all_agree_still_allow_a_change_that_was_not_seen():
    right = np.arange(300) % 2
    low, high = stats.bootstrap_paired(right, right)
    assert low == -high
    assert 1 / 300 <= high <= 3.7 / 300  # the rule of three: 1 - 0.025 ** (1 / n) is 3.7 / n


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
    random = np.random.default_rng(2)
    row = random.normal(10, 1, 51)
    found = stats.bootstrap_rounds(lambda medians: medians[0], row[None], draws=4000)
    by_hand = np.quantile(np.median(random.choice(row, (20_000, 51)), 1), [0.025, 0.975])
    assert tuple(found) == pytest.approx(by_hand, abs=0.1)
    assert found.median == np.median(row)
    assert not math.isfinite(
        stats.bootstrap_rounds(lambda medians: medians[0], row[None, :10]).high
    )


def test_an_interval_knows_how_many_samples_it_stands_on():
    series = np.arange(1.0, 11.0)
    for found in (stats.median_of_rounds(series), stats.median_interval(series)):
        assert (found.samples, found.median, found.enough) == (10, 5.5, False)
    assert stats.median_of_rounds(np.arange(11.0)).enough
    assert stats.bootstrap_paired([0, 0, 1], [1, 0, 1]).samples == 3


def test_a_scaled_interval_keeps_its_samples():
    found = 100 * stats.Interval(0.5, 1.5, samples=4, median=1.0) / 50
    assert found == stats.Interval(1.0, 3.0, samples=4, median=2.0)
    assert (100 * stats.Interval(0.5, 1.5, samples=4)).median is None
    assert tuple(-1 * stats.Interval(0.5, 1.5, samples=4)) == (-1.5, -0.5)


@pytest.mark.parametrize(("count", "quantile"), [(3, 4.303), (4, 3.182), (5, 2.776), (1001, 1.962)])
def test_the_interval_of_a_mean_reaches_student_s_t_standard_errors_to_both_sides(count, quantile):
    values = np.random.default_rng(0).normal(3, 1, count)
    found, error = stats.mean_interval(values), values.std(ddof=1) / math.sqrt(count)
    assert found.mean == found.median == pytest.approx(values.mean())
    assert (found.high - found.low) / 2 == pytest.approx(quantile * error, rel=1e-3)
    assert found.enough


def test_a_mean_ratio_is_geometric_and_its_interval_symmetric_around_it_in_factors():
    found = stats.mean_ratio([2.0, 4.0, 8.0], [1.0, 1.0, 1.0])
    assert found.median == pytest.approx(4)
    assert found.low * found.high == pytest.approx(16)
    assert found.basis == "t, n = 3"
    assert tuple(stats.mean_ratio([3.0, 6.0, 9.0], [1.0, 2.0, 3.0])) == pytest.approx((3, 3))
    assert tuple(stats.mean_ratio([2.0, 8.0], [1.0, 1.0])) == (0, math.inf)


@pytest.mark.parametrize("values", [[5.0], [4.0, 6.0]])
def test_one_or_two_values_allow_any_mean_and_decide_nothing(values):
    found = stats.mean_interval(values)
    assert tuple(found) == (-math.inf, math.inf)
    assert found.median == 5
    assert not found.enough
    assert str(100 * found) == f"500 (no 95 % interval: n = {len(values)})"


def test_an_interval_of_a_mean_names_student_and_the_number_of_values():
    assert str(stats.mean_interval([1.0, 2.0, 3.0])) == "2.00 [-0.48, 4.48; t, n = 3]"
    assert str(stats.median_of_rounds(np.arange(9.0))) == "4.00 [1.00, 7.00]"
    assert str(10 * stats.median_of_rounds(np.arange(9.0))) == "40.0 [10.0, 70.0]"
    assert str(100 * stats.median_of_rounds(np.arange(9.0))) == "400 [100, 700]"
