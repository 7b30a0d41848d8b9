"""For the lesson on quantization: grids drawn, one convolution in a file, a board.

Each function serves one cell of the lesson; the cell shows what goes in and what comes out.
"""

import logging
from collections import Counter

import numpy as np
import onnx
import pandas as pd
from IPython.display import display
from onnx import TensorProto, helper, numpy_helper

from labkit import export
from labkit.measure.stats import Interval
from labkit.plots import COLOURS, GREY, canvas

# NNCF is a quantizer that the course does not install. `nncf.quantize(model, dataset)` with its
# defaults, on this lesson's VGG, profile lab: 256 images to calibrate, 8,000 judged, 16 to time.
NNCF = {
    "MB": 1.53,
    "points lost": Interval(-0.109, 0.159, 8000, 0.025),
    "times as fast": Interval(1.585, 1.623, 13, 1.603),
}
NNCF_WHERE = "NNCF 3.4.0 (recorded 2026-11-30: AMD EPYC with AVX2, one thread, a busy machine)"


def quiet():
    """Keep the quantizer from reporting each tensor that it leaves in float."""
    logging.getLogger().setLevel(logging.ERROR)


# --- grids ----------------------------------------------------------------------------------------


def draw_grids(weights, rounded, decibels, bits=(3, 4, 5)):
    """Draw the histogram of weights with a grid over it, a panel for each number of bits.

    The grid ends at the largest weight.

    rounded   function (weights, scale, bits) -> weights on the grid
    decibels  function (exact, approximate) -> quality of an approximation in dB
    """
    figure, panels = canvas(9, 2.6, columns=len(bits))
    for ax, count in zip(panels, bits, strict=True):
        top = 2 ** (count - 1) - 1
        scale = np.abs(weights).max() / top
        ax.hist(weights.ravel(), 120, color=COLOURS[0], alpha=0.6)
        for value in scale * np.arange(-top, top + 1):
            ax.axvline(value, color=COLOURS[1], lw=0.8)
        quality = decibels(weights, rounded(weights, scale, count))
        ax.set(title=f"{count} bits: {quality:.1f} dB", xlabel="weight")
    panels[0].set_ylabel("count")
    display(figure)


# --- one convolution ------------------------------------------------------------------------------


def one_convolution(zero, *, relu=True):
    """Return a ModelProto: one convolution between Q/DQ nodes, with a ReLU behind it or without.

    zero  zero point of the convolution's input and output, uint8 or int8
    """
    integers = np.random.default_rng(0).integers(-127, 128, (8, 8, 3, 3)).astype(np.int8)
    make = helper.make_node
    nodes = [
        make("QuantizeLinear", ["x", "x_scale", "zero"], ["x_int8"]),
        make("DequantizeLinear", ["x_int8", "x_scale", "zero"], ["x_back"]),
        make("DequantizeLinear", ["w_int8", "w_scale", "w_zero"], ["w_back"], axis=0),
        make("Conv", ["x_back", "w_back"], ["sum"], pads=[1, 1, 1, 1]),
        make("Relu" if relu else "Identity", ["sum"], ["activation"]),
        make("QuantizeLinear", ["activation", "y_scale", "zero"], ["y_int8"]),
        make("DequantizeLinear", ["y_int8", "y_scale", "zero"], ["y"]),
    ]
    arrays = {
        "x_scale": np.float32(0.02),
        "y_scale": np.float32(0.5),
        "zero": zero,
        "w_int8": integers,
        "w_scale": np.full(len(integers), 0.01, np.float32),
        "w_zero": np.zeros(len(integers), np.int8),
    }
    stored = [numpy_helper.from_array(np.asarray(array), name) for name, array in arrays.items()]
    shape = ["N", None, None, None]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in "xy"]
    graph = helper.make_graph(nodes, "one convolution", ends[:1], ends[1:], stored)
    opset = helper.make_opsetid("", 20)
    return helper.make_model(graph, opset_imports=[opset], ir_version=10)


def kernels(model, path):
    """Count the operators in the graph that ONNX Runtime makes of a model.

    path  where that graph is written
    """
    export.session(model, "extended", optimized_model_filepath=str(path))
    return Counter(node.op_type for node in onnx.load(path).graph.node)


# --- the board ------------------------------------------------------------------------------------


def table(board):
    """Return the board as a DataFrame; what was not measured is a dash.

    board  {name: {"MB": a number, "points lost": an interval, "times as fast": an interval}};
           "SQNR (dB)", a number, is shown where a row has it
    """
    rows = {}
    for name, row in board.items():
        megabytes = row.get("MB")
        rows[name] = {
            "MB": "–" if megabytes is None else f"{megabytes:.2f}",
            "points lost (95 %)": _text(row.get("points lost")),
            "times as fast (95 %)": _text(row.get("times as fast")),
        }
        if "SQNR (dB)" in row:
            rows[name]["SQNR (dB)"] = f"{row['SQNR (dB)']:.1f}"
    return pd.DataFrame(rows).T


def beside_nncf(board, names):
    """Return rows of the board and the recorded row of NNCF, which the course does not install."""
    rows = {name: board[name] for name in names}
    return table(rows | {NNCF_WHERE: NNCF})


def _text(interval):
    """Return an interval as a text; a dash for None."""
    if interval is None:
        return "–"
    return f"{interval.median:.2f} ({interval.low:.2f} to {interval.high:.2f})"


def draw_board(board, goals=(1.0, 1.5)):
    """Draw points lost and times as fast of each file, with its megabytes; returns the picture.

    board  as in `table`
    goals  (points lost at most, times as fast at least), drawn as dashed lines
    """
    figure, (left, right) = canvas(9, 1.0 + 0.36 * len(board), columns=2)
    columns = ((left, "points lost", goals[0]), (right, "times as fast", goals[1]))
    for ax, column, goal in columns:
        for position, row in enumerate(board.values()):
            _draw_interval(ax, position, row.get(column))
        ax.axvline(goal, color=GREY, ls="--", lw=1)
        ax.set(ylim=(len(board) - 0.5, -0.5))
    left.axvline(0, color=GREY, lw=1)
    right.axvline(1, color=GREY, lw=1)
    left.set_yticks(range(len(board)), [_label(name, row) for name, row in board.items()])
    left.set_xlabel("points of accuracy lost")
    right.set(yticks=[], xlabel="times as fast as float32")
    right.set_xlim(0, None)
    display(figure)
    return figure


def _label(name, row):
    return name if row.get("MB") is None else f"{name}, {row['MB']:.2f} MB"


def _draw_interval(ax, position, interval):
    """Draw one interval and its middle in a row of the board, or a dash where there is none."""
    if interval is None:
        ax.annotate("–", (1.02, position), xycoords=("axes fraction", "data"), va="center")
        return
    ax.plot([interval.low, interval.high], [position] * 2, color=COLOURS[0], lw=4, alpha=0.6)
    ax.plot(interval.median, position, "o", color=COLOURS[0], ms=6)
    text = f"{interval.median:.2f}"
    ax.annotate(text, (1.02, position), xycoords=("axes fraction", "data"), va="center", fontsize=8)
