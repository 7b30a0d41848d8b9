"""Pictures of built engines: where each ONNX node went, what each layer computes in, which stream a kernel is on."""

import numpy as np
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from labkit.engines.tensorrt.layers import placed
from labkit.plots import COLOURS, GREY, canvas

KINDS = {  # what TensorRT calls its kernels, in words
    **dict.fromkeys(("correlation", "CaskConvolution", "Convolution"), "a convolution"),
    **dict.fromkeys(("gemm", "runtime_fusion", "CaskGemm", "MatrixMultiply", "fusion"), "a matrix product"),
    **dict.fromkeys(("kgen", "PointWise", "PointWiseV2"), "a generated kernel"),
}
FOLDED, OTHER = "folded away", "another kernel"
TYPE_COLOURS = {"fp32": COLOURS[0], "fp16": COLOURS[5], "bf16": COLOURS[4], "int8": COLOURS[1], "fp8": COLOURS[3]}


def fusion(built):
    """For each ONNX operator of a `Built`, how many of its nodes ended in which sort of kernel."""
    table = placed(built.source.model, built.kernels)
    ends = table["kind"].map(lambda kind: KINDS.get(kind, OTHER) if isinstance(kind, str) else FOLDED)
    counts = table.groupby(["operator", ends]).size().unstack(fill_value=0)
    counts = counts.loc[counts.sum(axis=1).sort_values().index]
    figure, ax = canvas(height=1.2 + 0.28 * len(counts))
    left, order = np.zeros(len(counts)), [*dict.fromkeys(KINDS.values()), OTHER, FOLDED]
    for sort, colour in zip(order, (*COLOURS[:4], "#DDDDDD"), strict=True):
        if sort in counts:
            ax.barh(
                counts.index, counts[sort], left=left, color=colour, label=f"in {sort}".replace("in folded", "folded")
            )
            left += counts[sort].to_numpy()
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.set_xlabel("nodes of the ONNX graph (count)")
    figure.legend(frameon=False, loc="outside upper left", ncols=3, fontsize=9)
    return figure


def precision(tables):
    """One row an engine, one box a heavy node in the order of the graph; the colour is what it computes in.

    tables  {name: the table of `precision.compared`}; a box with a cross computes in something else than was asked
    """
    figure, ax = canvas(9, 1.3 + 0.42 * len(tables))
    seen = []
    for row, table in enumerate(tables.values()):
        for column, line in enumerate(table.itertuples()):
            seen.append(line.actual)
            ax.barh(row, 0.92, 0.8, column, color=TYPE_COLOURS.get(line.actual, GREY))
            if line.actual != line.requested:
                ax.plot(column + 0.46, row, "x", color="black")
    ax.set_yticks(range(len(tables)), list(tables))
    ax.invert_yaxis()
    ax.spines["left"].set_visible(False)
    ax.set_xlim(0, max(map(len, tables.values())))
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.set_xlabel("convolutions and matrix products, in the order of the graph (a cross: not what the file asks for)")
    patches = [Patch(color=TYPE_COLOURS.get(kind, GREY), label=kind) for kind in dict.fromkeys(seen)]
    figure.legend(handles=patches, frameon=False, loc="outside upper left", ncols=len(patches), fontsize=9)
    return figure


def streams(kernels):
    """Kernels in the order they are started, each on the row of its CUDA stream; light ones only signal or wait."""
    numbers = sorted({kernel.stream for kernel in kernels})
    figure, ax = canvas(9, 1.2 + 0.45 * len(numbers))
    for place, kernel in enumerate(kernels):
        colour = COLOURS[0] if kernel.computes else "#BBBBBB"
        ax.barh(numbers.index(kernel.stream), 0.85, 0.7, place, color=colour)
    ax.set_yticks(range(len(numbers)), [f"stream {number}" for number in numbers])
    ax.invert_yaxis()
    ax.spines["left"].set_visible(False)
    ax.set_xlim(0, len(kernels))
    ax.set_xlabel("place in the engine's list, not time (grey: signals and waits)")
    return figure
