"""Pictures: units on every axis, the right marks, and no display needed."""

import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest

from labkit import plots
from labkit.ledger.rows import Deployment
from labkit.measure import SimulatedMachine, compare


def comparison():
    machine = SimulatedMachine(0)
    arms = {"eager": machine.work(1e-3), "compiled": machine.work(0.8e-3)}
    return compare(arms, tolerance=0, device=machine.clock)


def test_a_picture_shows_itself_as_png():
    png, _ = comparison().plot()._repr_png_()
    assert png.startswith(b"\x89PNG")


def test_a_picture_says_in_words_what_it_shows():
    figure, ax = plots.canvas()
    ax.plot([16, 256], [75.6, 74.0], label="rate 0.25")
    ax.plot([16, 256], [1, 1])
    ax.set(xlabel="batch size", ylabel="accuracy (%)", title="four\nseeds")
    words = "four seeds. accuracy (%) against batch size. rate 0.25: 75.6 at 16, 74 at 256."
    assert figure._repr_png_()[1] == {"alt": words}


def test_the_words_of_a_ratio_name_its_arms_and_verdicts():
    words = comparison().plot()._repr_png_()[1]["alt"]
    assert "times as fast as eager" in words
    assert "compiled; the same again; 1.25 x  faster".replace("  ", " ") in words


def test_the_ratio_picture_has_a_line_an_arm_and_the_null_arm():
    ax = comparison().plot().axes[0]
    assert [label.get_text() for label in ax.get_yticklabels()] == ["compiled", "the same again"]
    assert "times as fast as eager" in ax.get_xlabel()
    assert any("faster" in text.get_text() for text in ax.texts)


def test_an_interval_that_would_dwarf_the_others_is_cut_off_by_an_arrow_and_wide_ratios_want_a_log_axis():
    rows = comparison().rows
    long = [dataclasses.replace(rows[0], low=1.0, median=1.25, high=80.0), *rows[1:]]
    ax = plots.ratio(SimpleNamespace(rows=long, null=rows[-1])).axes[0]
    assert ax.get_xlim()[1] < 3
    assert ax.get_xscale() == "linear"
    assert [
        line.get_xdata()[0]
        for line in ax.lines
        if line.get_marker() == ">" and len(line.get_xdata())
    ] == [2.5]
    fast = [dataclasses.replace(rows[0], low=20.0, median=25.0, high=30.0), *rows[1:]]
    assert plots.ratio(SimpleNamespace(rows=fast, null=rows[-1])).axes[0].get_xscale() == "log"


def deployments(latencies, accuracies):
    about = {"run_key": "", "dataset": "d", "device": "cpu", "threads": 1}
    about |= {"engine": "eager", "precision": "fp32", "batch": 1}
    found = []
    for number, (ms, accuracy) in enumerate(zip(latencies, accuracies, strict=True), 1):
        measured = {"latency_p50_ms": ms, "accuracy": accuracy, "size_bytes": 10 * number}
        found.append(Deployment(**about, **measured, model=f"m{number}"))
    return found


def test_the_front_has_the_points_that_nothing_beats():
    assert plots.front(np.array([1, 2, 3, 2.5]), np.array([0.8, 0.9, 0.95, 0.85])).tolist() == [
        True,
        True,
        True,
        False,
    ]
    assert plots.front(np.array([1.0, 1]), np.array([2.0, 2])).tolist() == [True, True]


def test_a_point_that_is_as_good_in_one_figure_and_worse_in_the_other_is_beaten():
    latencies = np.array([1.0, 1.0, 2.0])
    accuracies = np.array([0.8, 0.9, 0.9])
    assert plots.front(latencies, accuracies).tolist() == [False, True, False]


def test_the_pareto_picture_numbers_few_points_with_units_on_the_axes_and_their_names_apart():
    rows = deployments([1.0, 2.0, 3.0, 2.5], [0.8, 0.9, 0.95, 0.85])
    ax = plots.pareto(rows).axes[0]
    assert [text.get_text() for text in ax.texts] == ["1", "2", "3", "4"]
    assert plots.numbered(rows)[2] == "m2"
    assert ax.lines[0].get_xydata().tolist() == [[1, 0.8], [2, 0.9], [3, 0.95]]
    assert ax.get_xlabel() == "latency p50 (ms), lower is better"
    assert "at most 40 B" in ax.get_title(loc="right")


def test_the_names_of_dots_say_engine_and_format_where_a_name_alone_would_stand_twice():
    rows = deployments([1.0, 2.0], [0.8, 0.9])
    twice = [rows[0], dataclasses.replace(rows[1], model="m1", engine="openvino")]
    assert plots.numbered(twice) == {1: "m1, eager fp32", 2: "m1, openvino fp32"}


def test_the_pareto_picture_is_readable_on_a_telephone_as_it_is():
    figure = plots.pareto(deployments([1.0, 20.0, 3.0], [0.8, 0.9, 0.95]))
    assert figure.get_figwidth() * 96 <= 372  # CSS pixels; what 400 leave between the margins
    texts = figure.findobj(lambda part: hasattr(part, "get_fontsize") and part.get_text())
    assert min(text.get_fontsize() for text in texts) >= 8


def test_dots_whose_numbers_would_lie_on_each_other_share_one_text():
    ax = plots.pareto(deployments([1.0, 3.0, 3.01, 2.0], [0.8, 0.95, 0.951, 0.9])).axes[0]
    assert [text.get_text() for text in ax.texts] == ["1", "2, 3", "4"]


def test_among_many_points_only_the_front_is_numbered():
    ax = plots.pareto(deployments([1.0, 2.0, *range(3, 15)], [0.8, 0.9, *[0.7] * 12])).axes[0]
    assert [text.get_text() for text in ax.texts] == ["1", "2"]
    assert ax.get_xscale() == "log"


BOXES = [(0, 0.0, 4.0, "forward"), (1, 0.5, 3.0, "conv"), (2, 1.0, 2.0, "gemm"), (0, 4.0, 6.0, "backward"),
         (1, 5.0, 4.0, "conv"), (0, 10.0, 1.0, "other")]  # fmt: skip


def test_in_a_flame_chart_all_that_lies_under_a_band_has_its_colour():
    bands = {"forward": "#ff0000", "backward": "#00ff00"}
    boxes = plots.flame(BOXES, label="ms", bands=bands).axes[0].collections
    red, under, deeper, green, right, outside = (box.get_facecolor()[0].tolist() for box in boxes)
    assert red == [1, 0, 0, 0.9]
    assert under == deeper == [1, 0, 0, 0.45]
    assert (green, right) == ([0, 1, 0, 0.9], [0, 1, 0, 0.45])
    assert outside[:3] == pytest.approx([0x88 / 255] * 3)


def test_a_logarithmic_axis_has_the_numbers_it_is_told():
    _, ax = plots.canvas()
    ax.plot([1, 10_000], [1, 2])
    plots.log_axis(ax, "x", lambda value: f"<{value:g}>")
    assert ax.get_xscale() == "log"
    assert ax.xaxis.get_major_formatter()(100, 0) == "<100>"


def test_the_words_of_a_picture_hold_the_bars_and_the_lines_that_have_no_name():
    figure, (left, right) = plots.canvas(columns=2)
    left.bar(["a", "b"], [3, 4.5], label="seconds")
    right.plot([1, 2, 4], [8, 6, 5])
    right.axhline(6)
    _, metadata = figure._repr_png_()
    assert metadata["alt"] == "a; b; seconds: 3, 4.5. 8 at 1, 5 at 4."


def test_boxes_that_are_drawn_as_bars_of_one_length_are_words_without_numbers():
    figure, ax = plots.canvas()
    for place in range(20):
        ax.barh(0, 0.94, left=place - 0.47)
    ax.text(0, 0, "int8")
    ax.set_yticks([0], ["a file"])
    assert figure._repr_png_()[1]["alt"] == "a file; int8."
    ax.barh(1, 0.5, label="longer")
    assert "0.94; longer: 0.5" in figure._repr_png_()[1]["alt"]


def test_the_words_of_the_front_say_which_no_other_beats_and_how_good_they_are():
    rows = deployments([1.0, 2.0, 3.0, 2.5], [0.8, 0.9, 0.95, 0.85])
    words = plots.front_in_words(rows)
    assert words.startswith(
        "Accuracy against latency. By the numbers, of 4 no other is better on both than m1: 80 % "
        "right in 1 ms; m2"
    )
    assert "m4" not in words


def test_the_words_of_a_picture_leave_out_the_numbers_of_its_axes_and_the_dots_of_a_row():
    figure, ax = plots.canvas()
    ax.plot([1, 2, 3], [0, 0, 0], ".")
    ax.plot([1, 2, 3], [1, 1, 1], ".", label="mean")
    ax.set_yticks([0, 1], ["ReLU", "GELU"])
    ax.set_xticks([1, 2, 3], ["10 k", "1 M", "1e+09"])
    assert figure._repr_png_()[1]["alt"] == "ReLU; GELU; mean: 1 at 1, 1 at 3."


def test_the_ratio_where_calls_alternate_is_a_hollow_diamond_and_only_where_it_differs():
    for cold, diamonds in ((0.9e-3, 1), (0.0, 0)):
        machine = SimulatedMachine(0)
        large, again = (machine.work(3e-3) for _ in range(2))
        arms = {"large": large, "small": machine.work(1.5e-3, cold=cold)}
        result = compare(arms, second_session=again, tolerance=0, device=machine.clock)
        (ax,) = plots.ratio(result).axes
        assert sum(line.get_marker() == "D" for line in ax.lines) == diamonds
        assert ("hollow" in ax.get_xlabel()) == bool(diamonds)


def test_names_of_curves_that_end_close_together_are_moved_apart_in_their_order(monkeypatch):
    figures = []
    monkeypatch.setattr("labkit.plots.lines.display", figures.append)
    curves = {"upper": {1: 90, 2: 51}, "lower": {1: 80, 2: 50}, "far": {1: 10, 2: 10}}
    plots.line(curves, x="x", y="y")
    heights = {text.get_text(): text.get_position()[1] for text in figures[0].axes[0].texts}
    assert heights["lower"] == 50
    assert heights["far"] == 10
    assert heights["upper"] - heights["lower"] == pytest.approx(0.07 * 90)
