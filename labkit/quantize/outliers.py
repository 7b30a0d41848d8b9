"""Outliers in float: the few channels that reach furthest are multiplied in float, not in INT8.

What     the columns of an activation whose largest values are far above those of the others leave
         the integer product; a small product in float adds their part: x W = (x without them) W +
         x[them] W[them]
When     a few channels of a transformer reach many times further than the rest and coarsen the grid
         for all
Cost     a selection, a small product and a sum per layer: time in each call, and the rows of their
         weights once more
Not when all channels reach about as far, or where smoothing is enough, which costs nothing in the
         call
Source   Dettmers et al. 2022 (LLM.int8), arXiv:2208.07339, section 3.2. There an outlier is above
         6.0 in absolute value; here it is measured against the other channels, because networks
         differ in scale
"""

from typing import Any

import numpy as np
import onnx

from labkit.quantize.smoothing import channel_maxima, inserted, layers_by_input, new_value, stored

FLOAT = "_outliers_in_float"  # stands in the names of the nodes that stay in float


def outliers_apart(model: onnx.ModelProto, data: Any, *, times: float = 2.5) -> onnx.ModelProto:
    """Return a copy of a model that multiplies its outliers in products of their own.

    The copy computes the same. Observe its ranges anew; `in_int8` leaves the new products in float.
    A model without outliers is returned unchanged.

    model  a ModelProto that `prepared_for_quantizer` returned
    data   a `Calibration`: the largest value of each channel is observed on it
    times  an outlier reaches further than this many times the median channel of its tensor
    """
    import onnx_ir

    split = onnx_ir.from_proto(model)
    layers = {}  # {value: the layers that only multiply it}
    for value, readers in layers_by_input(split.graph).items():
        plain_readers = [reader for reader in readers if _only_multiplies(reader)]
        if plain_readers:
            layers[value] = plain_readers
    if not layers:
        return model
    maxima = channel_maxima(model, data, {value.name: -1 for value in layers})
    for value, readers in layers.items():
        channels = maxima[value.name]
        outliers = np.flatnonzero(channels > times * np.median(channels))
        if len(outliers):
            _split(value, readers, outliers, len(channels))
    return onnx.shape_inference.infer_shapes(onnx_ir.to_proto(split))


def _only_multiplies(layer):
    """Return True for a layer that only multiplies by stored weights and whose output is read."""
    attributes = layer.attributes
    multiplies = layer.op_type == "Gemm" or (layer.op_type == "MatMul" and stored(layer).ndim == 2)
    unchanged_input = attributes.get_float("alpha", 1.0) == 1 and not attributes.get_int(
        "transA", 0
    )
    return multiplies and unchanged_input and not layer.outputs[0].is_graph_output()


def _split(value, readers, outliers, channels):
    """Split a value between two products: the outliers in float, the others in the layers.

    value     the value in the graph
    readers   the layers that multiply the value
    outliers  numbers of the outlier channels
    channels  number of all channels
    """
    # Before the first reader: the value without its outliers, and the outliers alone.
    first = readers[0]
    graph = first.graph
    inliers = np.ones(channels, np.float32)
    inliers[outliers] = 0
    mask = new_value(graph, f"{value.name}_others", inliers)
    indices = new_value(graph, f"{value.name}_places", outliers, np.int64)
    inlier_value = inserted(first, "Mul", [value, mask], f"{value.name}_rest{FLOAT}")
    outlier_value = inserted(first, "Gather", [value, indices], f"{value.name}_few{FLOAT}", axis=-1)

    # Each reader multiplies the value without outliers, and a product in float the outliers. Nodes
    # that read the output of the reader now read the sum of both.
    for reader in readers:
        weights = stored(reader)
        if reader.attributes.get_int("transB", 0):
            weights = weights.T
        rows = new_value(graph, f"{reader.name}_rows", weights[outliers])
        output = reader.outputs[0]
        uses = list(output.uses())
        product = inserted(reader, "MatMul", [outlier_value, rows], f"{reader.name}_product{FLOAT}")
        reader.replace_input_with(0, inlier_value)
        total = inserted(uses[0][0], "Add", [output, product], f"{reader.name}_sum{FLOAT}")
        for user, index in uses:
            user.replace_input_with(index, total)
