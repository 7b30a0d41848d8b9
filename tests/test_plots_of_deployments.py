"""Images with answers, the drawing of an ONNX file, a curve and a board show themselves, and say
what they show.
"""

import sys

import numpy as np
import onnx
import pandas as pd
import pytest
from onnx import helper

from labkit import plots
from labkit.plots import deployments, graphs, lines
from labkit.plots.canvas import drawn


@pytest.fixture
def shown(monkeypatch):
    """The figures that were shown."""
    figures = []
    for module in (deployments, graphs, lines):
        monkeypatch.setattr(module, "display", figures.append)
    monkeypatch.setattr(sys.modules["labkit.plots.images"], "_show", figures.append)
    return figures


def words(figure):
    return figure._repr_png_()[1]["alt"]


NAMES = ["shirt", "coat", "bag"]


def test_an_answer_stands_under_each_image_and_the_label_where_it_is_wrong(shown):
    pixels = np.zeros((3, 1, 4, 4))
    plots.answers(pixels, [0, 1, 2], [0, 0, 2], NAMES)
    captions = [ax.get_xlabel() for ax in shown[0].axes]
    assert captions == ["shirt", "coat\n(is: shirt)", "bag"]
    colours = [ax.xaxis.label.get_color() for ax in shown[0].axes]
    assert colours == ["black", plots.COLOURS[1], "black"]


def test_with_an_earlier_answer_orange_is_a_right_answer_that_was_lost(shown):
    plots.answers(np.zeros((3, 4, 4)), [1, 0, 2], [0, 0, 1], NAMES, before=[0, 1, 0])
    captions = [ax.get_xlabel() for ax in shown[0].axes]
    assert captions == [
        "shirt\n→ coat\n(is: shirt)",
        "coat\n→ shirt\n(is: shirt)",
        "shirt\n→ bag\n(is: coat)",
    ]
    colours = [ax.xaxis.label.get_color() for ax in shown[0].axes]
    assert colours == [plots.COLOURS[1], "black", "black"]


def test_only_the_first_images_are_shown_and_none_of_none(shown):
    plots.answers(np.zeros((30, 1, 4, 4)), [0] * 30, [0] * 30, NAMES, most=5)
    assert len(shown[0].axes) == 5
    plots.answers(np.zeros((0, 1, 4, 4)), [], [], NAMES)
    assert len(shown) == 1


def of_nodes(path, *nodes):
    """Write an ONNX file with these nodes from `x` to `y`."""
    vector = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1]) for name in "xy"]
    onnx.save(helper.make_model(helper.make_graph(list(nodes), "g", vector[:1], vector[1:])), path)
    return path


def test_a_graph_is_a_train_of_the_operators_on_the_way_from_input_to_output(shown, tmp_path):
    one = helper.make_tensor("one", onnx.TensorProto.FLOAT, [1], [1.0])
    path = of_nodes(
        tmp_path / "net.onnx",
        helper.make_node("Constant", [], ["w"], value=one),
        helper.make_node("Mul", ["x", "w"], ["a"]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("MatMul", ["b", "w"], ["c"]),
        helper.make_node("Add", ["a", "c"], ["y"]),
    )
    plots.graph(path)
    [ax] = shown[0].axes
    assert [text.get_text() for text in ax.texts if text.get_text()] == [
        "Mul",
        "Relu",
        "MatMul",
        "Add",
        "blue: multiplies weights",
    ]
    assert ax.get_title() == "net.onnx: 4 operators, from images to scores"
    assert [round(patch.get_x() + patch.get_width() / 2) for patch in ax.patches[:4]] == [
        0,
        1,
        2,
        3,
    ]
    assert words(shown[0]).endswith(
        "from images to scores. Mul; Relu; MatMul; Add; blue: multiplies weights."
    )
    arcs = [text for text in ax.texts if not text.get_text()]
    assert [(arc.xyann[0], arc.xy[0]) for arc in arcs] == [(0, 3)], "one shortcut, from Mul to Add"


def test_a_step_onto_the_grid_is_thin_and_has_no_name(shown, tmp_path):
    scale = helper.make_tensor("s", onnx.TensorProto.FLOAT, [], [1.0])
    path = of_nodes(
        tmp_path / "int8.onnx",
        helper.make_node("Constant", [], ["s"], value=scale),
        helper.make_node("QuantizeLinear", ["x", "s"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s"], ["d"]),
        helper.make_node("Relu", ["d"], ["y"]),
    )
    plots.graph(path)
    [ax] = shown[0].axes
    name, meaning = [text.get_text() for text in ax.texts]
    assert name == "Relu"
    assert meaning.startswith("thin orange lines: onto a grid")
    assert [patch.get_width() < 0.2 for patch in ax.patches] == [True, True, False]


def test_a_line_has_its_points_at_equal_distances_with_their_numbers(shown):
    plots.line({8: 94.0, 4: 93.5, 2: 10.0}, x="bits", y="accuracy (%)", reference=(10, "guessing"))
    [ax] = shown[0].axes
    curve = ax.get_lines()[0]
    assert list(curve.get_xdata()) == [0, 1, 2]
    assert list(curve.get_ydata()) == [94.0, 93.5, 10.0]
    assert [label.get_text() for label in ax.get_xticklabels()] == ["8", "4", "2"]
    assert [text.get_text() for text in ax.texts] == ["94.0", "93.5", "10.0", "guessing"]
    assert "accuracy (%) against bits" in words(shown[0])


def test_several_lines_have_their_names_at_their_ends(shown):
    plots.line(
        {"old": {1: 2.0, 64: 3.0}, "new": {1: 5.0, 64: 4.0}}, x="batch", y="images per second"
    )
    texts = {text.get_text(): text.get_position()[1] for text in shown[0].axes[0].texts}
    assert texts == {"old": 3.0, "new": 4.0}
    assert "old: 2 at 0, 3 at 1" in words(shown[0])


BOARD = pd.DataFrame(
    {
        "accuracy (%)": [93.0, 93.0, 92.5],
        "time (ms)": [1.0, 0.25, 0.125],
        "size (MB)": [6.0, 6.0, 1.5],
    },
    index=["PyTorch", "ONNX Runtime", "INT8"],
)


def test_a_board_shows_the_factor_of_each_step_and_what_the_order_asks(shown):
    plots.board(BOARD, order=5, guessing=10)
    [ax] = shown[0].axes
    texts = [text.get_text() for text in ax.texts]
    assert "INT8\n0.125 ms\n1.5 MB\n92.50 %" in texts
    assert [text for text in texts if text.endswith(" times")] == ["4.0 times", "2.0 times"]
    [band] = [patch for patch in ax.patches if patch.get_alpha() == 0.1]
    assert band.get_x() + band.get_width() == pytest.approx(1.0 / 5)
    areas = ax.collections[0].get_sizes()
    assert areas[2] / areas[0] == pytest.approx(1.5 / 6.0)


def test_a_board_of_one_row_and_one_that_misses_the_order_can_be_drawn(shown):
    plots.board(BOARD.iloc[:1], order=5)
    plots.board(BOARD, order=100)
    for figure in shown:
        left, right = figure.axes[0].get_xlim()
        assert left < BOARD["time (ms)"].iloc[0] / 100 * 1.1 or figure is shown[0]
        assert right > 1.0


def test_the_pictures_are_found_by_the_names_of_their_calls(shown):
    plots.board(BOARD, order=5)
    plots.line({1: 2.0, 2: 3.0}, x="x", y="y")
    assert drawn["board"] is shown[0]
    assert drawn["line"] is shown[1]
