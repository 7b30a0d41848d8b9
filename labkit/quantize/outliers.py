"""Outliers in float: the few channels that reach furthest are multiplied in float, all others in INT8.

What     the columns of an activation whose largest values stand far above the others leave the integer product; a small
         product in float brings them back: x W = (x without them) W + x[them] W[them]
When     a few channels of a transformer reach many times further than the rest and coarsen the grid for all
Cost     a selection, a small product and a sum per layer: time in each call, and the rows of their weights once more
Not when all channels reach about as far, or where smoothing is enough, which costs nothing in the call
Source   Dettmers et al. 2022 (LLM.int8), arXiv:2208.07339, section 3.2. There an outlier is above 6.0 in absolute
         value; here it is measured against the other channels, because networks differ in scale
"""

from typing import Any

import numpy as np
import onnx

from labkit.quantize.smoothing import entering, inserted, new_value, reach, stored

FLOAT = "_outliers_in_float"  # stands in the names of the nodes that stay in float


def outliers_apart(model: onnx.ModelProto, data: Any, *, times: float = 2.5) -> onnx.ModelProto:
    """A `prepared` ModelProto that computes the same, with its outliers in products of their own: a copy.

    Observe its ranges anew; `in_int8` leaves the new products in float. A network without outliers comes back as it is.

    data   a `Calibration`: the largest value of each channel is observed on it
    times  an outlier reaches further than so many times the median channel of its tensor
    """
    import onnx_ir

    split = onnx_ir.from_proto(model)
    layers = {value: list(filter(_plain, readers)) for value, readers in entering(split.graph).items()}
    layers = {value: readers for value, readers in layers.items() if readers}
    if not layers:
        return model
    furthest = reach(model, data, {value.name: -1 for value in layers})
    for value, readers in layers.items():
        channels = furthest[value.name]
        found = np.flatnonzero(channels > times * np.median(channels))
        if len(found):
            _split(value, readers, found, len(channels))
    return onnx.shape_inference.infer_shapes(onnx_ir.to_proto(split))


def _plain(layer):
    """True when a layer only multiplies its input by stored weights, and a node reads its output."""
    attributes = layer.attributes
    multiplies = layer.op_type == "Gemm" or (layer.op_type == "MatMul" and stored(layer).ndim == 2)
    same = attributes.get_float("alpha", 1.0) == 1 and not attributes.get_int("transA", 0)
    return multiplies and same and not layer.outputs[0].is_graph_output()


def _split(value, readers, found, channels):
    """Let the readers of a value multiply all but its outliers, and add the product of those."""
    others = np.ones(channels, np.float32)
    others[found] = 0
    graph, first = readers[0].graph, readers[0]
    mask = new_value(graph, f"{value.name}_others", others)
    places = new_value(graph, f"{value.name}_places", found, np.int64)
    rest = inserted(first, "Mul", [value, mask], f"{value.name}_rest{FLOAT}")
    few = inserted(first, "Gather", [value, places], f"{value.name}_few{FLOAT}", axis=-1)
    for reader in readers:
        weights = stored(reader)
        rows = (weights.T if reader.attributes.get_int("transB", 0) else weights)[found]
        rows = new_value(graph, f"{reader.name}_rows", rows)
        whole = reader.outputs[0]
        users = list(whole.uses())
        product = inserted(reader, "MatMul", [few, rows], f"{reader.name}_product{FLOAT}")
        reader.replace_input_with(0, rest)
        total = inserted(users[0][0], "Add", [whole, product], f"{reader.name}_sum{FLOAT}")
        for user, place in users:
            user.replace_input_with(place, total)
