"""Draw a network's ONNX file: its operators as boxes in a row, from input to output."""

from pathlib import Path

from IPython.display import display
from matplotlib.patches import Rectangle

from labkit.plots.canvas import COLOURS, GREY, canvas

HEAVY = ("Conv", "ConvTranspose", "Gemm", "MatMul")
GRID = ("QuantizeLinear", "DequantizeLinear")  # onto a grid of integers, and back
FAR = 1.5  # an input from an operator that is further away is drawn as an arc


def graph(path: str | Path) -> None:
    """Show the operators of an ONNX file from left to right.

    Operators that multiply weights are blue, the others grey; the weights are not drawn. A thin
    orange line is a step of quantization: numbers are rounded to a grid of integers, or integers
    become floating-point numbers again. An arc is a shortcut past other operators.
    """
    import onnx

    path = Path(path)
    nodes = _nodes_after_input(onnx.load(path, load_external_data=False).graph)
    wide = len(nodes) - sum(node.op_type in GRID for node in nodes)
    figure, ax = canvas(min(11.0, 1.5 + 0.42 * wide), 2.3)
    # {name of a tensor: where the operator stands that computes it}
    position: dict[str, float] = {}
    x, top = 0.0, 1.05
    for node in nodes:
        _draw(ax, node, x)
        for name in node.input:
            if name in position and x - position[name] > FAR:
                _arc(ax, position[name], x)
                top = 1.3  # room for arcs
        position |= dict.fromkeys(node.output, x)
        x += 0.5 if node.op_type in GRID else 1.0
    ax.set(
        xlim=(-0.7, x - 0.3),
        ylim=(0, top),
        title=f"{path.name}: {len(nodes)} operators, from images to scores",
    )
    _explain(ax, nodes)
    ax.axis("off")
    display(figure)


def _nodes_after_input(graph):
    """Return the nodes whose results depend on the input of a graph, as a list.

    The other nodes only prepare weights.
    """
    reached = {tensor.name for tensor in graph.input} - {
        tensor.name for tensor in graph.initializer
    }
    nodes = []
    for node in graph.node:
        if any(name in reached for name in node.input):
            nodes.append(node)
            reached |= set(node.output)
    return nodes


def _draw(ax, node, x):
    """Draw an operator at the position `x` as a box with its name.

    An operator that quantizes or dequantizes (`GRID`) is drawn as a thin line without a name.
    """
    if node.op_type in GRID:
        ax.add_patch(Rectangle((x - 0.075, 0), 0.15, 1, color=COLOURS[1]))
        return
    colour = COLOURS[0] if node.op_type in HEAVY else GREY
    ax.add_patch(Rectangle((x - 0.43, 0), 0.86, 1, color=colour, alpha=0.35, lw=0))
    ax.text(x, 0.5, node.op_type, rotation=90, ha="center", va="center", fontsize=8.5)


def _explain(ax, nodes):
    """Write below the boxes what blue boxes and orange lines mean, if the picture has any."""
    types = {node.op_type for node in nodes}
    meanings = []
    if types & set(HEAVY):
        meanings.append(("blue: multiplies weights", COLOURS[0]))
    if types & set(GRID):
        meanings.append(("thin orange lines: onto a grid of integers, or back from it", COLOURS[1]))
    for row, (meaning, colour) in enumerate(meanings):
        ax.text(
            0,
            -0.03 - 0.13 * row,
            meaning,
            transform=ax.transAxes,
            color=colour,
            va="top",
            fontsize=9,
        )


def _arc(ax, start, end):
    style = {"arrowstyle": "-", "connectionstyle": "arc3,rad=-0.2", "color": GREY}
    ax.annotate("", (end, 1), (start, 1), arrowprops=style)
