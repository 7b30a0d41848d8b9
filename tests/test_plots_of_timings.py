"""Pictures of times show themselves, and say in words what they show."""

import numpy as np
import pytest

from labkit import plots
from labkit.measure.stats import Interval, mean_interval, median_interval
from labkit.plots import timings


@pytest.fixture
def shown(monkeypatch):
    """The figures that were shown."""
    figures = []
    monkeypatch.setattr(timings, "display", figures.append)
    return figures


def words(figure):
    return figure._repr_png_()[1]["alt"]


def bars_of(figure):
    """The drawn intervals: lines along a row."""
    lines = [line.get_xdata() for line in figure.axes[0].lines if len(line.get_xdata()) == 2]
    return [tuple(ends) for ends in lines if ends[0] != ends[1]]


VALUES = np.array([1.0, 2, 3, 4, 5, 6, 7, 8, 90])


def test_dots_show_every_value_and_the_interval_that_was_asked_for(shown):
    assert plots.dots({"old": VALUES}, unit="ms", label="time", interval=median_interval) is None
    plots.dots({"old": VALUES}, unit="ms", interval=mean_interval)
    plots.dots({"old": VALUES}, unit="ms")
    drawn = [line.get_xdata() for line in shown[0].axes[0].lines]
    assert any(np.array_equal(values, VALUES) for values in drawn)
    assert bars_of(shown[0]) == [tuple(median_interval(VALUES))]
    assert bars_of(shown[1]) == [tuple(mean_interval(VALUES))]
    assert bars_of(shown[2]) == []
    assert "time (ms)" in words(shown[0]) and "old" in words(shown[0]) and "5 ms" in words(shown[0])
    assert "14 ms" in words(shown[1])


def test_an_interval_that_misses_the_reference_has_another_colour(shown):
    rows = {"holds it": Interval(0.9, 1.1, 40, 1.0), "misses it": Interval(1.1, 1.3, 40, 1.2)}
    plots.dots(rows, unit="x", reference=1)
    colours = {
        line.get_ydata()[0]: line.get_color()
        for line in shown[0].axes[0].lines
        if line.get_marker() == "o"
    }
    assert colours == {0: plots.COLOURS[0], 1: plots.COLOURS[1]}


def test_an_interval_without_ends_is_drawn_as_its_middle(shown):
    plots.dots({"two seeds": Interval(-np.inf, np.inf, 2, 5.0)}, unit="points", reference=0)
    assert bars_of(shown[0]) == []
    assert "5 points" in words(shown[0])


def test_a_function_of_the_reader_that_returns_two_numbers_is_an_interval(shown):
    plots.dots({"old": VALUES}, unit="ms", interval=lambda values: (2.0, 8.0))
    assert bars_of(shown[0]) == [(2.0, 8.0)]


def test_bars_start_at_zero_or_have_a_log_axis_and_carry_their_numbers(shown):
    plots.bars({"old": 2.0, "new": VALUES}, unit="ms", interval=median_interval)
    plots.bars({"old": 2.0, "new": 200.0}, unit="ms")
    assert [bar.get_width() for bar in shown[0].axes[0].patches] == [2.0, 5.0]
    assert shown[0].axes[0].get_xlim()[0] == 0 and shown[0].axes[0].get_xscale() == "linear"
    assert shown[1].axes[0].get_xscale() == "log"
    assert "2 ms" in words(shown[0]) and "5 ms" in words(shown[0])


def test_calls_are_drawn_in_their_order_with_one_scale_for_all_panels(shown):
    order = np.arange(20)
    plots.calls(
        {
            "apart": {"A": (order, 1 + order / 10)},
            "in turn": {"A": (order, 5 + order), "B": (order, 9 - order / 4)},
        }
    )
    left, right = shown[0].axes
    assert left.get_ylim() == right.get_ylim()
    assert (left.get_title(), right.get_title()) == ("apart", "in turn")
    assert np.array_equal(right.lines[0].get_ydata(), 5 + order)
    assert left.get_ylabel() == "time (ms)"


def test_a_cure_stands_beside_what_was_said_and_a_refusal_has_no_number(shown):
    said = {"did not wait": 300.0, "wrong mean": 0.5, "stored": 4000.0}
    plots.cures(said, {"did not wait": 1.01, "wrong mean": 0.98, "stored": None}, unit="times")
    text = words(shown[0])
    assert all(
        part in text for part in ("300 x", "1.01 x", "0.5 x", "4,000 x", "refused", "did not wait")
    )
    dots = [line for line in shown[0].axes[0].lines if line.get_marker() == "o"]
    assert len(dots) == 5


def test_all_text_is_at_least_eight_points_high(shown):
    plots.dots({"a": VALUES}, unit="ms")
    plots.calls({"t": {"A": (VALUES, VALUES)}})
    plots.cures({"a": 2.0}, {"a": 1.0}, unit="times")
    for figure in shown:
        texts = [
            text
            for ax in figure.axes
            for text in (*ax.texts, *ax.get_xticklabels(), ax.xaxis.label)
        ]
        assert min(text.get_size() for text in texts) >= 8


def test_values_far_outside_are_counted_and_do_not_press_the_intervals_together(shown):
    values = np.append(np.random.default_rng(0).permutation(np.linspace(0.9, 1.1, 40)), 50.0)
    plots.dots(
        {"apart": {"1": values}, "in turn": {"1": values[:40]}},
        unit="x",
        reference=1,
        interval=median_interval,
    )
    left, right = shown[0].axes
    assert left.get_xlim() == right.get_xlim() and left.get_xlim()[1] < 2
    assert "1 of 41 dots lie outside" in left.get_xlabel()
    assert "outside" not in right.get_xlabel()
    assert (left.get_title(), right.get_title()) == ("apart", "in turn")
