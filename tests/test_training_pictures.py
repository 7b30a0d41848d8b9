"""Pictures of trainings: each shows itself, with units, readable text, and the numbers it was
given.
"""

from types import SimpleNamespace

import IPython.display
import numpy as np
import pytest

from labkit import plots
from labkit.train.repeat import Runs


@pytest.fixture
def shown(monkeypatch):
    """The pictures that were displayed."""
    pictures = []
    monkeypatch.setattr(IPython.display, "display", pictures.append)
    return pictures


def runs(mean, seeds=range(4), epochs=3):
    rng = np.random.default_rng(round(mean * 10))
    made = [
        SimpleNamespace(
            accuracy=mean + rng.normal() / 10,
            losses=np.linspace(2, 0.5, epochs) + rng.random() / 10,
        )
        for _ in seeds
    ]
    return Runs(made, seeds)


def falling(step, steps):
    return 1 - step / steps


def draw_rates():
    plots.rates(
        {(16, 0.25): runs(77), (256, 0.25): runs(64), (256, 2.0): runs(76)},
        rules={"linear": (0.25, 2.0)},
    )


def draw_curves():
    plots.curves(
        {
            "from 1/16": {"batch 16": runs(70)},
            "from 1/4": {"batch 16": runs(71), "batch 256": runs(60)},
        }
    )


def draw_schedules():
    plots.schedules({"a": falling}, steps=6, learning_rate=4, runs={"a": runs(70)})


def draw_layers():
    plots.layers(
        np.full((2, 5, 3), 4.0), falling, learning_rate=0.5, names=["first", "second", "last"]
    )


def draw_ladder():
    rungs = {"worse": runs(70), "better": runs(76)}
    plots.ladder(
        rungs,
        runs(78),
        gap=runs(68),
        groups={"yours": ["better"]},
        label="against batch 16 (points)",
    )


def draw_images():
    plots.images(np.zeros((3, 16)), ["shirt", "bag", "boot"], wrong=[False, True, False])


DRAWINGS = [draw_rates, draw_curves, draw_schedules, draw_layers, draw_ladder, draw_images]


@pytest.mark.parametrize("draw", DRAWINGS)
def test_a_picture_shows_itself_once_with_text_of_at_least_8_points_and_words(draw, shown):
    assert draw() is None
    (figure,) = shown
    figure.canvas.draw()
    texts = figure.findobj(lambda part: hasattr(part, "get_fontsize") and part.get_text())
    assert min(text.get_fontsize() for text in texts) >= 8
    _, about = figure._repr_png_()
    assert about["alt"]


@pytest.mark.parametrize("draw", [each for each in DRAWINGS if each is not draw_images])
def test_every_axis_with_numbers_says_what_they_are(draw, shown):
    draw()
    for ax in shown[0].axes:
        assert ax.get_xlabel()
        assert ax.get_ylabel() or draw is draw_ladder  # whose rows have names


def test_the_sweep_shows_the_lowest_mean_and_ends_each_arrow_at_its_rule(shown):
    draw_rates()
    (ax,) = shown[0].axes
    assert ax.get_ylim()[0] < 63.9
    assert [label.get_text() for label in ax.get_xticklabels()] == ["1/4", "2"]
    arrows = [(text.xyann, text.xy) for text in ax.texts if not text.get_text()]
    assert [(start[0], end[0]) for start, end in arrows] == [(0.25, 2.0)]


def test_a_schedule_and_its_loss_stand_over_the_same_epochs(shown):
    draw_schedules()
    left, right = shown[0].axes
    assert left.get_xlabel() == right.get_xlabel() == "epoch"
    assert left.get_xlim() == right.get_xlim() == (0, 3)
    assert left.lines[0].get_ydata().tolist() == pytest.approx(
        [4 * falling(step, 6) for step in range(6)]
    )
    assert left.lines[0].get_xdata().tolist() == [0, 0.5, 1, 1.5, 2, 2.5]


def test_of_schedules_that_lie_on_each_other_the_earlier_one_is_wider_and_stays_visible(shown):
    by_name, trained = (
        {"first": falling, "second": falling},
        {"first": runs(70), "second": runs(70)},
    )
    plots.schedules(by_name, steps=6, learning_rate=4, runs=trained)
    first, second = shown[0].axes[0].lines
    assert first.get_linewidth() > second.get_linewidth()


def test_panels_of_curves_share_their_axis(shown):
    draw_curves()
    left, right = shown[0].axes
    assert left.get_ylim() == right.get_ylim()


def test_the_rate_of_a_layer_is_its_ratio_times_the_learning_rate_and_the_schedule(shown):
    draw_layers()
    _, right = shown[0].axes
    wanted = [4 * 0.5 * falling(step, 5) for step in range(5)]
    assert right.lines[0].get_ydata().tolist() == pytest.approx(wanted)
    assert right.lines[-1].get_ydata().tolist() == pytest.approx(wanted)  # the mean of equal layers


def test_the_ladder_has_the_best_on_top_its_share_of_the_gap_and_the_colour_of_its_group(shown):
    draw_ladder()
    (ax,) = shown[0].axes
    assert [label.get_text() for label in ax.get_yticklabels()] == ["worse", "better"]
    texts = [text.get_text() for text in ax.texts]
    small, large, better = (runs(mean).accuracy.mean() for mean in (78, 68, 76))
    assert f"{100 * (better - large) / (small - large):.0f} %" in texts
    assert ax.lines[2].get_color() == plots.COLOURS[1]
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["yours"]


def test_a_ladder_pairs_seeds_where_one_side_has_more(shown):
    few, many = runs(70, seeds=range(3)), runs(71, seeds=range(6))
    plots.ladder({"many": many}, few)
    dots = shown[0].axes[0].lines[0].get_xdata()
    assert dots.tolist() == pytest.approx((many - few).tolist())
    assert len(dots) == 3


def test_images_are_shown_in_rows_of_eight_and_a_wrong_answer_is_orange(shown):
    plots.images(np.zeros((10, 16)), ["bag"] * 10, wrong=[True, *[False] * 9])
    axes = shown[0].axes
    assert len(axes) == 16
    assert axes[0].xaxis.label.get_color() == plots.COLOURS[1]
    assert axes[1].xaxis.label.get_color() == "black"
    assert not axes[10].images
