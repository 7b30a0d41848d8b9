"""Pictures of a service: responses over a day, and trade-offs between networks."""

import numpy as np
import pandas as pd
import pytest

from labkit import plots
from labkit.plots import lines, queues


@pytest.fixture
def shown(monkeypatch):
    """The figures that were shown."""
    figures = []
    monkeypatch.setattr(queues, "display", figures.append)
    monkeypatch.setattr(lines, "display", figures.append)
    return figures


def dots_of(ax):
    """(n, 2) the places of the dots."""
    drawn = [line for line in ax.lines if line.get_marker() == "o" and len(line.get_xdata())]
    places = [(line.get_xdata()[0], line.get_ydata()[0]) for line in drawn]
    return sorted((float(np.ravel(x)[0]), float(np.ravel(y)[0])) for x, y in places)


def test_a_network_that_takes_half_the_time_stands_at_two_and_one_of_half_the_accuracy_at_a_half(
    shown,
):
    board = pd.DataFrame(
        {"accuracy (%)": [90, 45], "latency (ms)": [4.0, 2.0]}, index=["large", "small"]
    )
    plots.trade_offs(board, reference="large", higher_is_better=["accuracy (%)"])
    assert dots_of(shown[0].axes[0]) == [(0.5, 0.0), (1.0, 0.0), (1.0, 1.0), (2.0, 1.0)]


def test_what_was_measured_stands_beside_its_dots_and_what_was_not_is_said(shown):
    board = pd.DataFrame(
        {"latency (ms)": [4.25, 2.0], "energy (J)": [None, None]}, index=["large", "small"]
    )
    plots.trade_offs(board, reference="large", higher_is_better=[])
    words = shown[0]._repr_png_()[1]["alt"]
    left, right = shown[0].axes
    names, latencies, energies = (text.get_text().split() for text in right.get_yticklabels())
    assert names == ["large", "small"]
    assert (latencies, energies) == (["4.25", "2"], ["-", "-"])
    assert left.get_ylim() == right.get_ylim()
    assert "not measured on this machine" in words
    assert len(dots_of(left)) == 2


def test_a_day_is_drawn_with_a_name_for_each_line(shown):
    arrivals = np.arange(5.0)
    plots.responses({"few": (arrivals, arrivals * 0 + 3), "many": (arrivals, arrivals)})
    few, many = shown[0].axes[0].lines
    assert np.array_equal(many.get_ydata(), arrivals)
    assert (few.get_label(), many.get_label()) == ("few", "many")
    assert shown[0].axes[0].get_ylim()[0] == 0
