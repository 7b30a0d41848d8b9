"""Pictures of phases: the parts of a bar are its times, one after the other, and a phase has one
colour everywhere.
"""

import pytest
from matplotlib.colors import to_hex

from labkit import plots
from labkit.plots.canvas import drawn
from labkit.plots.phases import OF_TRAINING

STEP = {"data": 200.0, "forward": 50.0, "backward": 100.0, "optimizer": 10.0}


def parts(figure):
    """{phase: [(begin, width, colour) of each row]}."""
    (ax,) = figure.axes
    return {
        bars.get_label(): [
            (bar.get_x(), bar.get_width(), to_hex(bar.get_facecolor())) for bar in bars
        ]
        for bars in ax.containers
    }


def test_the_parts_of_a_bar_follow_each_other_and_the_sum_stands_beside_it():
    plots.phases({"as it was": STEP, "quick": {**STEP, "data": 40.0}}, unit="ms")
    bars = parts(drawn["phases"])
    assert [bars[phase][0][:2] for phase in STEP] == [(0, 200), (200, 50), (250, 100), (350, 10)]
    assert [bars[phase][1][0] for phase in STEP] == [0, 40, 90, 190]
    texts = [text.get_text() for text in drawn["phases"].axes[0].texts]
    assert {"360 ms", "200 ms"} <= set(texts)
    assert "10" not in texts, "a part too narrow for its number has none"


def test_a_phase_of_training_has_its_colour_also_where_others_are_missing():
    plots.phases({"no data": {"forward": 1.0, "backward": 2.0, "all-reduce": 3.0}}, unit="ms")
    bars = parts(drawn["phases"])
    assert bars["forward"][0][2] == OF_TRAINING["forward"].lower()
    assert bars["backward"][0][2] == OF_TRAINING["backward"].lower()
    assert bars["all-reduce"][0][2] not in {colour.lower() for colour in OF_TRAINING.values()}


def test_repetitions_are_counted_from_one_and_the_mark_stands_before_its_number():
    plots.repeated(
        {"time (ms)": {"without": [3, 3, 3], "with": [3, 1, 1]}},
        label="update",
        marked=(2, "freed"),
    )
    without, with_it, mark = drawn["repeated"].axes[0].lines
    assert list(without.get_xdata()) == [1, 2, 3]
    assert list(with_it.get_ydata()) == [3, 1, 1]
    assert mark.get_xdata()[0] == pytest.approx(1.5)


def test_in_a_flame_chart_a_band_below_another_takes_its_own_colour():
    boxes = [
        (0, 0.0, 4.0, "forward"),
        (1, 0.0, 1.0, "GELU"),
        (2, 0.2, 0.5, "gelu"),
        (1, 2.0, 1.0, "Linear"),
    ]
    figure = plots.flame(boxes, label="ms", bands={"forward": "#ff0000", "GELU": "#0000ff"})
    forward, gelu, under, linear = (
        box.get_facecolor()[0].tolist() for box in figure.axes[0].collections
    )
    assert forward == [1, 0, 0, 0.9]
    assert (gelu, under) == ([0, 0, 1, 0.9], [0, 0, 1, 0.45])
    assert linear == [1, 0, 0, 0.45]
