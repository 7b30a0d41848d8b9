"""For the lesson on ONNX graphs: a photo, pictures of graphs, faults to find, a board of files.

Each function serves one cell of the lesson; the cell shows what goes in and what comes out.
"""

import ast

import numpy as np
import onnx
from IPython.display import display
from matplotlib import cbook
from onnx import numpy_helper
from PIL import Image
from torchvision.models import EfficientNet_B0_Weights

from labkit import export
from labkit.measure.stats import median_of_rounds
from labkit.plots import COLOURS, GREY, canvas

CLASSES = EfficientNet_B0_Weights.DEFAULT.meta["categories"]  # names of ImageNet's 1,000 classes
HEAVY = ("Conv", "Gemm", "MatMul")

# --- a photo --------------------------------------------------------------------------------------


def photos(side, count=8):
    """Cut a photo of Grace Hopper, which comes with Matplotlib, into overlapping squares.

    side     pixels of a square
    returns  (count, 3, side, side) float32, made ready as in the training of EfficientNet-Lite0
    """
    photo = Image.open(cbook.get_sample_data("grace_hopper.jpg", asfileobj=False)).convert("RGB")
    longest = min(photo.size)
    squares = []
    for number in range(count):
        length = int(longest * (1 - 0.5 * number / count))
        left, top = (photo.width - length) // 2, (photo.height - length) * (number % 3) // 2
        square = photo.crop((left, top, left + length, top + length))
        squares.append(np.asarray(square.resize((side, side), Image.Resampling.BILINEAR)))
    pixels = np.stack(squares).transpose(0, 3, 1, 2)
    # in one piece, channel by channel: the exporter would write down any other order, too
    return np.ascontiguousarray((pixels - 127.0) / 128.0, np.float32)


def show_photos(images, scores):
    """Show photos with the class of the largest score under each.

    images  (n, 3, side, side), as `photos` returns them
    scores  (n, 1000)
    """
    figure, axes = canvas(1.25 * len(images), 1.7, columns=len(images))
    for ax, image, row in zip(np.atleast_1d(axes), images, scores, strict=True):
        ax.imshow(np.clip(image.transpose(1, 2, 0) / 2 + 0.5, 0, 1))
        ax.set(xticks=[], yticks=[])
        ax.spines[:].set_visible(False)
        ax.set_xlabel(CLASSES[row.argmax()].replace(" ", "\n"), fontsize=9)
    display(figure)


# --- graphs ---------------------------------------------------------------------------------------


def draw_module(path, module):
    """Draw the operators that one module of the network became, as a picture.

    path    an ONNX file that torch.onnx.export wrote: its nodes name the modules they come from
    module  such as "1", the name of network.get_submodule
    """
    model = onnx.load(path, load_external_data=False)
    shapes = {tensor.name: tuple(tensor.dims) for tensor in model.graph.initializer}
    nodes = [node for node in model.graph.node if module in _scopes(node)]
    positions = {name: -1 for name in nodes[0].input if name not in shapes}
    figure, ax = canvas(1.5 + 0.98 * len(nodes), 2.1)
    _box(ax, -1, "in", (), "white")
    for x, node in enumerate(nodes):
        weights = [shapes[name] for name in node.input if name in shapes]
        _box(ax, x, node.op_type, weights, COLOURS[5] if node.op_type in HEAVY else "white")
        for name in node.input:
            if name in positions:
                _arrow(ax, positions[name], x)
        positions |= dict.fromkeys(node.output, x)
    ax.set(xlim=(-1.5, len(nodes) - 0.4), ylim=(-0.75, 1.15))
    ax.set_title(f"{path.name}: what became of module {module}", fontsize=10)
    ax.axis("off")
    display(figure)


def _scopes(node):
    """Return the names of the modules that a node comes from, the outermost first."""
    notes = {entry.key: entry.value for entry in node.metadata_props}
    return ast.literal_eval(notes.get("pkg.torch.onnx.name_scopes", "[]"))


def _box(ax, x, name, weights, colour):
    """Draw one operator, with the shapes of its weights below."""
    style = {"boxstyle": "round", "fc": colour, "ec": GREY}
    name = name.replace("LayerNormalization", "Layer\nNorm").replace("Transpose", "Trans-\npose")
    ax.text(x, 0, name, ha="center", va="center", fontsize=9, bbox=style)
    for row, shape in enumerate(weights[:2]):
        text = " x ".join(map(str, shape))
        ax.text(x, -0.42 - 0.17 * row, text, ha="center", va="center", fontsize=8, color=GREY)


def _arrow(ax, start, end):
    """Draw an arrow from one box to another; past boxes in between it is an arc."""
    style = {"arrowstyle": "->", "color": GREY, "shrinkA": 2, "shrinkB": 2}
    if end - start > 1:
        style["connectionstyle"] = "arc3,rad=-0.14"
        ax.annotate("", (end, 0.22), (start, 0.22), arrowprops=style)
    else:
        ax.annotate("", (end - 0.36, 0), (start + 0.36, 0), arrowprops=style)


def operator_chart(path, calls=5):
    """Draw the operator chart of an ONNX file: nodes of each kind, and their share of the time.

    ONNX Runtime runs the file as it is written.

    calls  how many calls are profiled
    """
    table = export.operator_times(path, 1, level="none", calls=calls)
    figure, panels = canvas(9, 0.8 + 0.28 * len(table), columns=2)
    for ax, values in zip(panels, (table["nodes"], 100 * table["share"]), strict=True):
        bars = ax.barh(range(len(table)), values, color=COLOURS[0], height=0.7)
        ax.bar_label(bars, fmt="{:.0f}", padding=3, fontsize=8)
        ax.set(ylim=(len(table) - 0.5, -0.5))
        ax.margins(x=0.12)
    panels[0].set_yticks(range(len(table)), table["operator"])
    panels[0].set_xlabel("nodes")
    panels[1].set_yticks([])
    panels[1].set_xlabel("share of a call's time (%)")
    display(figure)


# --- faults ---------------------------------------------------------------------------------------


def with_fault(path, fault):
    """Write a copy of the traced EfficientNet-Lite0 with one of the `FAULTS`. Returns its path."""
    model = onnx.load(path)
    FAULTS[fault](model)
    target = path.with_name(f"{fault}.onnx")
    onnx.save(model, target)
    return target


def _to_16_bits(model):
    """Round the weights of all layers to float16."""
    weights = {tensor.name for tensor in model.graph.initializer if len(tensor.dims) > 1}
    _change(model, weights, np.float16)


def _lose_a_class(model):
    """Take the weights of one class out of the last layer."""
    name = next(node.input[1] for node in model.graph.node if node.op_type == "Gemm")
    _change(model, {name}, lambda weights: weights * (np.arange(len(weights)) != 7)[:, None])


def _take_the_default_epsilon(model):
    """Give each batch norm the epsilon that PyTorch takes by default."""
    for node in model.graph.node:
        for attribute in node.attribute:
            if attribute.name == "epsilon":
                attribute.f = 1e-5


def _pad_the_other_side(model):
    """Exchange begin and end of the padding of the first layer."""
    name = next(node.input[1] for node in model.graph.node if node.op_type == "Pad")
    _change(model, {name}, lambda pads: np.roll(pads, 4))


FAULTS = {
    "weights in 16 bits": _to_16_bits,
    "one class is lost": _lose_a_class,
    "epsilon 0.00001 for 0.001": _take_the_default_epsilon,
    "first layer pads left, not right": _pad_the_other_side,
}


def _change(model, names, function):
    """Replace stored tensors by the values that a function makes of them; their types stay.

    names     names of the tensors
    function  array -> array
    """
    tensors = [tensor for tensor in model.graph.initializer if tensor.name in names]
    for node in model.graph.node:
        if node.op_type == "Constant" and node.output[0] in names:
            tensors.append(node.attribute[0].t)
    for tensor in tensors:
        array = numpy_helper.to_array(tensor)
        tensor.CopyFrom(numpy_helper.from_array(function(array).astype(array.dtype), tensor.name))


# --- the board ------------------------------------------------------------------------------------


def times_faster(times, name, reference):
    """Return how many times as fast a call is as another call, an `Interval`.

    times  what `labkit.measure.in_turn` returned
    """
    return median_of_rounds(times.ratios(name, reference))


def draw_board(board):
    """Draw nodes of each file, and how many times as fast it is as the first; returns the picture.

    board  {name of a file: (nodes, interval as written, interval with all rules)}
    """
    names = list(board)
    counts, written, rules = zip(*board.values(), strict=True)
    figure, (left, right) = canvas(9, 1.0 + 0.42 * len(names), columns=2)
    nodes = left.barh(names, counts, color=COLOURS[0], height=0.6)
    left.bar_label(nodes, padding=3, fontsize=8)
    left.set(xlabel="nodes in the file")
    left.margins(x=0.14)
    _draw_intervals(right, written, "run as written", colour=GREY, shift=-0.13)
    _draw_intervals(right, rules, "all rules", colour=COLOURS[1], shift=0.13)
    right.axvline(1, color=GREY, lw=1)
    right.set(xlabel="times as fast as traced, run as written", yticks=[])
    right.set_xlim(0, None)
    right.legend(frameon=False, loc="upper right", fontsize=8)
    for ax in (left, right):
        ax.set_ylim(len(names) - 0.5, -0.5)
    display(figure)
    return figure


def _draw_intervals(ax, intervals, label, *, colour, shift):
    """Draw one interval in each row, and write its middle beside it."""
    for row, interval in enumerate(intervals):
        y = row + shift
        ax.plot([interval.low, interval.high], [y, y], color=colour, lw=4, alpha=0.6)
        ax.plot(interval.median, y, "o", color=colour, ms=6, label="_" if row else label)
        text = f"{interval.median:.2f}"
        ax.annotate(
            text,
            (1.02, y),
            xycoords=("axes fraction", "data"),
            va="center",
            color=colour,
            fontsize=8,
        )
