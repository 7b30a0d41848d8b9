"""The verdicts on predictions and claims."""

import math
from dataclasses import replace

import pytest

from labkit.errors import LessonError
from labkit.ledger.rows import Prediction
from labkit.lesson import verdicts
from labkit.measure.stats import Interval, mean_interval


def of_guess(answer, result, low=None, high=None):
    """The verdict on what a reader said."""
    row = Prediction(
        run_key="r", prediction_id="p", question="?", source="reader", answer=answer, result=result
    )
    return verdicts.of_prediction(replace(row, low=low, high=high))


@pytest.mark.parametrize(
    ("answer", "result", "verdict"),
    [
        *[("2", "2", "right"), ("2", "2.19", "right"), ("2.19", "2", "right")],
        *[("2", "2.3", "close"), ("2.5", "2", "close"), ("2", "1.61", "close")],
        *[
            ("2", "3", "off"),
            ("2", "-2", "off"),
            ("0", "1", "off"),
            ("0", "0", "right"),
            ("-2", "-2.1", "right"),
        ],
        *[("memory", "memory", "right"), ("memory", "arithmetic", "off"), ("int8", "8", "off")],
    ],
)
def test_a_guess_is_right_within_a_tenth_and_close_within_a_quarter(answer, result, verdict):
    assert of_guess(answer, result) == verdict


def test_an_answer_that_the_interval_allows_is_not_called_off():
    assert of_guess("3", "2", 0.5, 3.5) == "open"
    assert of_guess("0", "1", -0.5, 2.5) == "open"
    assert of_guess("2.1", "2", 0.5, 3.5) == "right"
    assert of_guess("4", "2", 0.5, 3.5) == "off"
    assert of_guess("4", None) == "open"


class Timed:
    low, high, median, floor, pairs = 1.02, 1.06, 1.04, 0.03, 40


def test_a_ratio_of_timings_is_judged_with_what_two_identical_arms_differed_in():
    found = verdicts.weigh(Timed())
    assert (found.low, found.high, found.value) == pytest.approx((1.02 / 1.03, 1.06 * 1.03, 1.04))
    verdict, reason = verdicts.of_claim(found, verdicts.Bounds(above=1))
    assert (verdict, reason) == ("inconclusive", "the same code twice differed by up to 3 % here")


def test_too_few_samples_prove_nothing_and_the_reason_says_how_many_are_missing():
    class Few(Timed):
        pairs = 10

    assert verdicts.weigh(Few()).doubt == "only 10 of the 11 pairs that are needed"
    assert (
        verdicts.weigh(Interval(1.2, 1.4, samples=4)).doubt
        == "only 4 of the 11 samples that are needed"
    )
    alone = verdicts.weigh(mean_interval([2.0, 4.0]))
    # one number, which the ledger and a parcel can hold
    assert (alone.low, alone.value, alone.high) == (3, 3, 3)
    assert alone.doubt == "only 2 of the 3 samples that are needed"
    assert verdicts.weigh(Timed()).doubt is None
    assert verdicts.weigh(mean_interval([2.0, 2.1, 2.2])).doubt is None
    assert verdicts.weigh(mean_interval([2.0, 2.1, 2.2])).basis == "t, n = 3"


@pytest.mark.parametrize(("low", "high"), [(-math.inf, math.inf), (1.5, math.inf), (-math.inf, 3)])
def test_an_interval_without_an_end_decides_nothing_however_many_samples_stand_behind_it(low, high):
    evidence = verdicts.weigh(Interval(low, high, samples=1000, median=2.0))
    assert (evidence.low, evidence.value, evidence.high) == (2, 2, 2)
    assert verdicts.of_claim(evidence, verdicts.Bounds(above=1)) == (
        "inconclusive",
        "its interval has no end",
    )


@pytest.mark.parametrize(("low", "high"), [(-math.inf, math.inf), (1.5, math.inf), (-math.inf, 3)])
def test_an_interval_without_an_end_and_without_an_estimate_has_no_number_to_keep(low, high):
    evidence = verdicts.weigh(Interval(low, high, samples=1000))
    assert evidence.numbers() == {"value": None, "low": None, "high": None, "basis": None}
    assert verdicts.of_claim(evidence, verdicts.Bounds(above=1)) == (
        "inconclusive",
        "its interval has no end",
    )


@pytest.mark.parametrize("pair", [(1.1, 1.3), [1.1, 1.3]])
def test_a_bare_pair_of_numbers_is_no_interval(pair):
    with pytest.raises(LessonError, match="number of its samples"):
        verdicts.weigh(pair)


@pytest.mark.parametrize(("low", "high"), [(0.001, 1000), (-4000, 900), (-2e4, 9e4)])
def test_a_very_wide_interval_with_a_narrow_bound_in_it_decides_nothing(low, high):
    assert verdicts.Bounds(at_least=0.5, at_most=2).verdict(low, high) == "inconclusive"
    assert verdicts.Bounds(at_least=-2, at_most=-0.5).verdict(-high, -low) == "inconclusive"


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [(1.1, 1.3, "holds"), (0.9, 1.2, "inconclusive"), (0.5, 0.8, "fails")],
)
def test_what_holds_for_the_whole_interval_holds_and_what_holds_nowhere_fails(low, high, verdict):
    assert verdicts.Bounds(at_least=1).verdict(low, high) == verdict
    assert verdicts.Bounds(at_most=-1).verdict(-high, -low) == verdict


@pytest.mark.parametrize(
    ("bounds", "low", "high", "verdict"),
    [
        *[
            ({"at_least": 1}, 1, 1, "holds"),
            ({"above": 1}, 1, 1, "fails"),
            ({"above": 1}, 1, 2, "inconclusive"),
        ],
        *[
            ({"at_most": 1}, 1, 1, "holds"),
            ({"below": 1}, 1, 1, "fails"),
            ({"below": 1}, 0, 1, "inconclusive"),
        ],
        *[({"at_least": 1}, 0, 1, "inconclusive"), ({"above": 1}, 0, 1, "fails")],
        *[
            ({"at_least": 0, "below": 2}, 0, 1.9, "holds"),
            ({"above": -1, "below": 1}, -1, 1, "inconclusive"),
        ],
    ],
)
def test_a_bound_itself_belongs_to_at_least_and_at_most_and_not_to_above_and_below(
    bounds, low, high, verdict
):
    assert verdicts.Bounds(**bounds).verdict(low, high) == verdict


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [
        (0.95, 1.05, "holds"),
        (0.87, 1.103, "inconclusive"),
        (1.2, 1.4, "fails"),
        (-math.inf, math.inf, "inconclusive"),
    ],
)
def test_a_claim_that_something_lies_within_bounds_fails_only_where_no_part_of_the_interval_does(
    low, high, verdict
):
    assert verdicts.Bounds(at_least=0.9, at_most=1.1).verdict(low, high) == verdict


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        (2, (2.0, 2.0, 2.0)),
        (Interval(1, 3, 20), (2.0, 1.0, 3.0)),
        (Interval(1, 3, 20, median=1.5), (1.5, 1.0, 3.0)),
        *[
            (None, (None, None, None)),
            (float("nan"), (None, None, None)),
            (Interval(math.nan, 1, 20), (None,) * 3),
        ],
    ],
)
def test_the_number_shown_is_the_point_estimate_and_the_interval_shown_is_the_one_judged(
    value, wanted
):
    assert verdicts.weigh(value)[:3] == wanted
