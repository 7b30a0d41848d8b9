"""Outliers in float: the few channels with by far the largest values are multiplied in float.

What     some channels of an activation x have largest values far above those of the other channels.
         These outlier channels leave the integer product, and a small product in float adds their
         part: x W = (x with outliers set to 0) W + x[outliers] W[outliers]
When     a few channels of a transformer are many times larger than the rest, and coarsen the grid
         for all channels
Cost     a selection, a small product and a sum per layer, which take time in each call; the rows of
         W for the outliers are stored twice
Not when the channels are of similar size, or smoothing is enough: smoothing costs little or nothing
         in a call
Source   Dettmers et al. 2022 (LLM.int8), arXiv:2208.07339, section 3.2. There an outlier is above
         6.0 in absolute value. Here it is compared with the other channels, because networks differ
         in scale
"""

from typing import Any

import numpy as np
import onnx

from labkit.quantize.smoothing import channel_maxima, inserted, layers_by_input, new_value, stored

FLOAT = "_outliers_in_float"  # stands in the names of the nodes that stay in float


def outliers_apart(model: onnx.ModelProto, data: Any, *, times: float = 2.5) -> onnx.ModelProto:
    """Return a copy of a model that multiplies its outlier channels in separate products.

    The copy computes the same as the model. `in_int8` leaves the separate products in float. The
    ranges of the activations change: call `observe` again for the copy. A model without outliers is
    returned with the same nodes.

    model  a ModelProto that `prepared_for_quantizer` returned
    data   a `Calibration`: the largest absolute value of each channel is observed on it
    times  a channel is an outlier if its largest value is above `times` times the median of these
           largest values over all channels of the tensor
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
    """Return True if outliers can be split off from a layer, which must be a plain matrix product.

    The layer is a Gemm, or a MatMul by a stored matrix. Its input is neither transposed nor scaled,
    and its output is not an output of the graph.
    """
    attributes = layer.attributes
    multiplies = layer.op_type == "Gemm" or (layer.op_type == "MatMul" and stored(layer).ndim == 2)
    unchanged_input = attributes.get_float("alpha", 1.0) == 1 and not attributes.get_int(
        "transA", 0
    )
    return multiplies and unchanged_input and not layer.outputs[0].is_graph_output()


def _split(value, readers, outliers, channels):
    """Split the products of a value in two: outlier channels in float, the other channels in INT8.

    The new products are added to the graph, which is changed.

    value     an activation of the graph
    readers   the layers that multiply the value
    outliers  indices of the outlier channels
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
