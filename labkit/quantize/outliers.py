"""Outliers in float: the few channels that reach furthest are multiplied in float, all others in INT8.

What     the columns of an activation whose largest values stand far above the others leave the integer product; a small
         product in float brings them back: x W = (x without them) W + x[them] W[them]
When     a few channels of a transformer reach many times further than the rest and coarsen the grid for all
Cost     a selection, a small product and a sum per layer: time in each call, and the rows of their weights once more
Not when all channels reach about as far, or where smoothing is enough, which costs nothing in the call
Source   Dettmers et al. 2022 (LLM.int8), arXiv:2208.07339, section 3.2. There an outlier is above 6.0 in absolute
         value; here it is measured against the other channels, because networks differ in scale
"""

import numpy as np

from labkit.quantize.smoothing import entering, new_value, reach, stored

FLOAT = "_outliers_in_float"  # stands in the names of the nodes that stay in float


def outliers_apart(model, data, *, times=2.5):
    """A `prepared` ModelProto that computes the same, with its outliers in products of their own: a copy.

    Observe its ranges anew; `in_int8` leaves the new products in float. A network without outliers comes back as it is.

    data   a `Calibration`: the largest value of each channel is observed on it
    times  an outlier reaches further than so many times the median channel of its tensor
    """
    import onnx
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
    """Whether a layer multiplies its input by stored weights, and nothing else, and a node reads what it makes."""
    attributes = layer.attributes
    multiplies = layer.op_type == "Gemm" or (layer.op_type == "MatMul" and stored(layer).ndim == 2)
    same = attributes.get_float("alpha", 1.0) == 1 and not attributes.get_int("transA", 0)
    return multiplies and same and not layer.outputs[0].is_graph_output()


def _split(value, readers, found, channels):
    """Let the readers of a value multiply all but its outliers, and add the product of those."""
    others = np.ones(channels, np.float32)
    others[found] = 0
    rest = _node(readers[0], "Mul", [value, new_value(readers[0].graph, f"{value.name}_others", others)], value.name)
    indices = new_value(readers[0].graph, f"{value.name}_places", found, np.int64)
    few = _node(readers[0], "Gather", [value, indices], f"{value.name}_few", axis=-1)
    for reader in readers:
        weights = stored(reader)
        rows = (weights.T if reader.attributes.get_int("transB", 0) else weights)[found]
        whole, users = reader.outputs[0], list(reader.outputs[0].uses())
        product = _node(reader, "MatMul", [few, new_value(reader.graph, f"{reader.name}_rows", rows)], reader.name)
        reader.replace_input_with(0, rest)
        total = _node(users[0][0], "Add", [whole, product], f"{reader.name}_sum")
        for user, place in users:
            user.replace_input_with(place, total)


def _node(before, kind, inputs, name, **attributes):
    """Put a node into the graph that stays in float: its output."""
    import onnx_ir

    made = onnx_ir.node(kind, inputs, attributes, outputs=[onnx_ir.val(f"{name}{FLOAT}")], name=f"{name}{FLOAT}")
    before.graph.insert_before(before, made)
    return made.outputs[0]
