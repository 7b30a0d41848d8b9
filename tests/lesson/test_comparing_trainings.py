"""What the lesson on comparing trainings draws and looks up: where its dots stand, and whose
numbers it shows.
"""

import numpy as np
import pytest
from matplotlib import pyplot

from labkit.lesson.support import load_support

study = load_support("comparing_trainings")


@pytest.fixture
def drawn(monkeypatch):
    """The figures that the lesson would show."""
    figures = []
    monkeypatch.setattr(study, "display", figures.append)
    yield figures
    pyplot.close("all")


def dots(ax):
    """{(x, y)} of the single dots of a picture."""
    found = set()
    for line in ax.lines:
        if line.get_marker() == "o" and len(line.get_xdata()):
            found |= set(
                zip(map(float, line.get_xdata()), map(float, line.get_ydata()), strict=True)
            )
    return found


def test_a_row_of_the_board_has_a_dot_for_false_alarms_and_one_for_the_true_winner(drawn):
    figure = study.draw_board(
        {"one each": (100, 78), "pairs": (5, 80), "best of eight": (24, None)}
    )
    assert drawn == [figure]
    (ax,) = figure.axes
    assert dots(ax) == {(100, 0), (78, 0), (5, 1), (80, 1), (24, 2)}
    assert [tick.get_text() for tick in ax.get_yticklabels()] == [
        "one each",
        "pairs",
        "best of eight",
    ]
    assert sorted(text.get_text() for text in ax.texts) == ["100", "24", "5", "78", "80"]
    assert ax.get_ylim()[0] > ax.get_ylim()[1], "the first row is on top"


def test_numbers_stand_on_the_outer_sides_of_the_two_dots(drawn):
    (ax,) = study.draw_board({"alarms above": (100, 78), "alarms below": (5, 80)}).axes
    side = {text.get_text(): text.get_ha() for text in ax.texts}
    assert side == {"78": "right", "100": "left", "5": "right", "80": "left"}


def test_every_training_is_a_dot_and_the_mean_a_line(drawn):
    study.draw_runs({"ReLU": np.array([80.0, 81.0]), "HardSwish": np.array([81.0, 83.0])})
    (ax,) = drawn[0].axes
    assert sorted(x for x, _ in dots(ax)) == [80, 81, 81, 83]
    means = [segment[0][0] for lines in ax.collections for segment in lines.get_segments()]
    assert means == [80.5, 82]


def test_pairs_stand_at_both_accuracies_and_nothing_is_cut_off(drawn):
    study.draw_pairs(np.array([80.0, 81.0]), np.array([80.5, 82.0]), ("ReLU", "HardSwish"))
    (ax,) = drawn[0].axes
    assert dots(ax) == {(80, 80.5), (81, 82)}
    assert ax.get_xlim() == ax.get_ylim() == pytest.approx((79.9, 82.1))
    assert ax.get_xlabel().startswith("ReLU")


def test_rates_are_drawn_from_the_lowest_to_the_highest_with_accuracies_and_leads(drawn):
    ours = {1 / 25: np.array([79.0, 80.0, 81.0]), 1 / 400: np.array([81.0, 83.0, 85.0])}
    others = {1 / 25: np.array([80.0, 80.0, 80.0]), 1 / 400: np.array([80.0, 81.0, 82.0])}
    study.draw_rates({"B": others, "A": ours})
    left, right = drawn[0].axes
    for ax in (left, right):
        assert [tick.get_text() for tick in ax.get_xticklabels()] == ["1/400", "1/25"]
    means = {line.get_label(): list(line.get_ydata()) for line in left.lines}
    assert means == {"A": [83, 80], "B": [81, 80]}
    bars = [line.get_ydata() for line in right.lines if line.get_linewidth() == 5]
    assert bars[0] == pytest.approx([2 - 4.303 / 3**0.5, 2 + 4.303 / 3**0.5], abs=1e-3)
    assert bars[1] == pytest.approx([-4.303 / 3**0.5, 4.303 / 3**0.5], abs=1e-3)
    assert [text.get_text() for text in right.texts] == ["A ahead", "B ahead"]


def test_coverage_has_a_curve_for_each_kind_and_the_promise(drawn):
    study.draw_coverage({"1.96": {3: 81.0, 5: 88.0}, "t": {3: 95.0, 5: 95.1}})
    (ax,) = drawn[0].axes
    assert dots(ax) == {(3, 81), (5, 88), (3, 95), (5, 95.1)}
    assert ax.get_legend_handles_labels()[1] == ["1.96", "t", "promised: 95 %"]


def test_a_bootstrap_draws_pairs_and_holds_the_estimate():
    rng = np.random.default_rng(1)
    one = rng.normal(size=200)
    other = one + 0.5 * rng.normal(size=200)

    def spread_of_leads(one, other):
        return np.std(one - other)

    interval = study.bootstrap(spread_of_leads, one, other)
    assert interval.low < interval.median < interval.high
    assert interval.median == spread_of_leads(one, other)
    assert interval.high < 0.6, "drawn apart, the leads would spread by 1.5"
    assert interval.samples == 200


def test_the_published_accuracies_are_those_of_the_readme():
    published = study.published_accuracies().round(2)
    assert published.to_dict() == {"ReLU": 46.32, "HardSwish": 44.32}


def test_ours_stand_beside_the_published_ones_which_have_no_spread():
    rows = study.beside_published(
        {"ReLU": np.array([80.0, 82.0]), "HardSwish": np.array([81.0, 81.0])}
    )
    assert rows.loc["ReLU"].tolist() == ["46.32 %", "81.00 %", "1.41 points", "unknown"]
    assert list(rows.index) == ["ReLU", "HardSwish"]
