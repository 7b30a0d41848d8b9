"""How a prediction and a claim are judged."""

import math

import pytest

from labkit.lesson import verdicts


@pytest.mark.parametrize(
    ("answer", "result", "verdict"),
    [
        *[("2", "2", "right"), ("2", "2.19", "right"), ("2.19", "2", "right")],
        *[("2", "2.3", "close"), ("2.5", "2", "close"), ("2", "1.61", "close")],
        *[("2", "3", "off"), ("2", "-2", "off"), ("0", "1", "off"), ("0", "0", "right"), ("-2", "-2.1", "right")],
        *[("memory", "memory", "right"), ("memory", "arithmetic", "off"), ("int8", "8", "off")],
    ],
)
def test_a_guess_is_right_within_a_tenth_and_close_within_a_quarter(answer, result, verdict):
    assert verdicts.judge(answer, result) == verdict


def test_an_answer_that_the_interval_allows_is_not_called_off():
    assert verdicts.judge("3", "2", 0.5, 3.5) == "open"
    assert verdicts.judge("0", "1", -0.5, 2.5) == "open"
    assert verdicts.judge("2.1", "2", 0.5, 3.5) == "right"
    assert verdicts.judge("4", "2", 0.5, 3.5) == "off"
    assert verdicts.judge("4", None) == "open"


class Timed:
    low, high, median, floor, pairs = 1.02, 1.06, 1.04, 0.03, 40


def test_a_ratio_of_timings_is_judged_with_what_two_identical_arms_differed_in():
    assert verdicts.widened(Timed()) == pytest.approx((1.02 / 1.03, 1.06 * 1.03))
    assert verdicts.widened((1.02, 1.06)) == (1.02, 1.06)
    assert verdicts.widened(None) == (None, None)


def test_a_ratio_of_too_few_pairs_proves_nothing():
    class Few(Timed):
        pairs = 10

    assert verdicts.doubt(Few()) == "only 10 pairs of calls fitted into the time, 11 are needed"
    assert verdicts.doubt(Timed()) is None
    assert verdicts.doubt((1.0, 2.0)) is None


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [(1.1, 1.3, "holds"), (0.9, 1.2, "inconclusive"), (0.5, 0.8, "fails"), (None, None, "inconclusive")],
)
@pytest.mark.parametrize("holds_if", [lambda low, high: low > 1, lambda value: value > 1])
def test_what_holds_for_the_whole_interval_holds_and_what_holds_nowhere_fails(low, high, verdict, holds_if):
    assert verdicts.verdict(low, high, holds_if) == verdict


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [(0.95, 1.05, "holds"), (0.87, 1.103, "inconclusive"), (1.2, 1.4, "fails"), (-math.inf, math.inf, "inconclusive")],
)
def test_a_claim_that_something_lies_within_bounds_fails_only_where_no_part_of_the_interval_does(low, high, verdict):
    assert verdicts.verdict(low, high, lambda low, high: low >= 0.9 and high <= 1.1) == verdict
    assert verdicts.verdict(low, high, lambda value: 0.9 <= value <= 1.1) == verdict


class Ratio:
    low, high, median = 1.1, 1.5, 1.2


@pytest.mark.parametrize(
    ("value", "wanted"),
    [(2, (2.0, 2.0)), ((1, 3), (1.0, 3.0)), (Ratio(), (1.1, 1.5)), (None, (None, None)), (float("nan"), (None, None))],
)
def test_an_interval_is_read_from_a_number_a_pair_or_anything_with_two_ends(value, wanted):
    assert verdicts.interval(value) == wanted


def test_the_point_in_the_middle_is_the_median_where_there_is_one():
    assert verdicts.middle(Ratio(), 1.1, 1.5) == 1.2
    assert verdicts.middle((1.0, 2.0), 1.0, 2.0) == 1.5
