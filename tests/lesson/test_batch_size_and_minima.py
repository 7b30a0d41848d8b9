"""What the lesson on batch size and minima draws: where its dots, lines and arrows stand."""

from types import SimpleNamespace

import numpy as np
import pytest
from matplotlib import pyplot

from labkit.lesson.support import load_support
from labkit.train.repeat import Runs

study = load_support("batch_size_and_minima")


@pytest.fixture
def drawn(monkeypatch):
    """The figures that the lesson would show."""
    figures = []
    monkeypatch.setattr(study, "display", figures.append)
    yield figures
    pyplot.close("all")


def runs_with(accuracies, training_accuracy=90.0, losses=(1.0, 0.5)):
    trained = [
        SimpleNamespace(accuracy=accuracy, training_accuracy=training_accuracy, losses=list(losses))
        for accuracy in accuracies
    ]
    return Runs(trained, range(len(trained)))


def points(line):
    return list(zip(*line.get_data(), strict=True))


def line_of(ax, label):
    """The line under this name: as it is for `plot`, the line of the means for `errorbar`."""
    handles, labels = ax.get_legend_handles_labels()
    handle = handles[labels.index(label)]
    return handle.lines[0] if hasattr(handle, "lines") else handle


def test_errors_are_what_is_missing_to_100_percent_by_batch_and_share_one_height(drawn):
    early = {64: runs_with([60, 64, 62], 70.0), 16: runs_with([70, 74, 72], 80.0)}
    study.errors({"early": early, "finished": {16: runs_with([75, 76, 77], 99.0)}})
    left, right = drawn[0].axes
    assert points(line_of(left, "validation error")) == [(16, 28), (64, 38)]
    assert points(line_of(left, "training error")) == [(16, 20), (64, 30)]
    assert points(line_of(right, "training error")) == [(16, 1)]
    assert left.get_ylim() == right.get_ylim()


def test_each_training_descends_to_its_own_end_over_epochs_and_over_steps(drawn):
    short = SimpleNamespace(accuracy=75.0, losses=[1.0, 0.04])
    long = SimpleNamespace(accuracy=75.0, losses=[1.0, 0.5, 0.2, 0.05])
    study.descents({"batch 16": (16, Runs([short, long], range(2)))}, images=256, look_every=8)
    by_epochs, by_steps = drawn[0].axes
    assert [points(line)[-1] for line in by_steps.lines] == [(16, 0.04), (32, 0.05)]
    assert [points(line)[-1] for line in by_epochs.lines[:2]] == [(1.0, 0.04), (2.0, 0.05)]
    assert by_steps.get_legend_handles_labels()[1] == ["batch 16"]


def test_rates_show_every_seed_the_means_and_the_goal_on_the_axis(drawn):
    runs = {
        (16, 1): runs_with([70, 90]),
        (16, 1 / 4): runs_with([74, 76]),
        (256, 4): runs_with([20]),
    }
    study.rates(runs, goal=25)
    (ax,) = drawn[0].axes
    assert points(line_of(ax, "batch 16")) == [(1 / 4, 25), (1, 20)]
    low, high = ax.get_ylim()
    assert all(low < error < high for error in (30, 10, 24, 26, 80, 25)), "no dot is cut off"
    assert [tick.get_text() for tick in ax.get_xticklabels()] == ["1/4", "1", "4"]
    assert [25, 25] in [list(line.get_ydata()) for line in ax.lines], "the goal"


def test_a_dot_of_the_map_is_the_geometric_mean_of_the_sharpness_and_the_mean_error(drawn):
    spots = {
        "batch 16, 1/16": (np.array([1.0, 100.0]), np.array([24.0, 26.0])),
        "batch 16, 1": (np.array([0.5, 0.5]), np.array([25.0, 25.0])),
        "ghosts, 1": (np.array([2.0, 8.0]), np.array([23.0, 25.0])),
    }
    figure = study.draw_map(spots)
    assert drawn == [figure]
    (ax,) = figure.axes
    large = [points(line)[0] for line in ax.lines if line.get_markersize() == 9]
    assert large == [pytest.approx(spot) for spot in ((10, 25), (0.5, 25), (4, 24))]
    assert ax.get_legend_handles_labels()[1] == ["batch 16", "ghosts"], "one entry per family"
    assert [text.get_text() for text in ax.texts] == ["1/16", "1", "1"]


def test_an_arrow_goes_from_each_network_to_the_same_in_other_weights_which_is_hollow(drawn):
    error = np.array([25.0, 25.0])
    sharpness = {
        "batch 16, 1/16": 5.0,
        "batch 256, 1/16": 24.0,
        "batch 16, other": 45.0,
        "batch 256, other": 3.0,
    }
    spots = {name: (np.array([value, value]), error) for name, value in sharpness.items()}
    moved = {f"batch {batch}, 1/16": f"batch {batch}, other" for batch in (16, 256)}
    (ax,) = study.draw_map(spots, moved).axes
    arrows = [(text.xyann[0], text.xy[0]) for text in ax.texts if text.arrow_patch]
    assert arrows == [pytest.approx((5, 45)), pytest.approx((24, 3))]
    fills = [
        line.get_markerfacecolor() == "white" for line in ax.lines if line.get_markersize() == 9
    ]
    assert fills == [False, False, True, True]


def test_the_bowl_shows_only_the_positions_that_lie_inside_it(drawn):
    study.bowl({0.1: [1.0, 0.2], 0.3: [1.0, -1.4, 5.0]}, curvature=8)
    inside = [points(axis.lines[1]) for axis in drawn[0].axes]
    assert inside[0] == [pytest.approx((1, 4)), pytest.approx((0.2, 0.16))]
    assert [w for w, _ in inside[1]] == [1.0, -1.4]


def test_lines_carry_the_losses_at_their_distances(drawn):
    study.lines({"flat": [0.2, 0.1, 0.2], "sharp": [1.0, 0.1, 1.0]}, [-1, 0, 1])
    (ax,) = drawn[0].axes
    assert points(line_of(ax, "sharp")) == [(-1, 1.0), (0, 0.1), (1, 1.0)]
