"""Run a file in float16 with each rounding written out, so that a CPU rounds where the file says.

ONNX Runtime has hardly any float16 kernels for CPUs. It computes an operator in float32 between two
casts of its own, and leaves out a pair of casts between two operators. So a chain of operators is
computed in float32 as a whole, and what float16 destroys comes out as if it were not lost.

Example  x + 2048 - 2048 in float16 rounds to even numbers, for numbers above 2048 are 2 apart. With
         the roundings left out it is x.

Here every operator on float16 is replaced by casts to float32, the operator, and a cast of its
result to float16. ONNX Runtime keeps the casts of the file itself where they lose digits.

Limits   sums inside an operator are those of float32, as GPUs have them. A GPU that fuses two
         operators rounds less often than the file says
"""

import onnx
from onnx import TensorProto, helper

from labkit.export.walk import inside

FLOAT16 = TensorProto.FLOAT16
# operators without added casts: they only move numbers, have float16 as an attribute, or have
# float16 kernels
AS_THEY_ARE = {
    *("Cast", "CastLike", "Constant", "If", "Loop", "Scan", "QuantizeLinear", "DequantizeLinear"),
    *("Identity", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Shape", "Size"),
}


def has_float16(model: onnx.ModelProto) -> bool:
    """Return True if a ModelProto stores or makes numbers in float16."""
    if any(tensor.data_type == FLOAT16 for tensor in inside(model.graph, TensorProto)):
        return True
    nodes = inside(model.graph, onnx.NodeProto)
    return any(node.op_type == "Cast" and _casts_to_float16(node) for node in nodes)


def _casts_to_float16(node):
    """Return True if a Cast node casts to float16."""
    return any(entry.name == "to" and entry.i == FLOAT16 for entry in node.attribute)


def with_roundings(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a copy of a ModelProto in which each result in float16 is rounded by a cast.

    A node that has a tensor of unknown type stays as it is.
    """
    typed = onnx.shape_inference.infer_shapes(model)
    types = {tensor.name: tensor.data_type for tensor in inside(typed.graph, TensorProto)}
    for value in inside(typed.graph, onnx.ValueInfoProto):
        types[value.name] = value.type.tensor_type.elem_type
    rounded = onnx.ModelProto()
    rounded.CopyFrom(model)
    # inner graphs first: the nodes that hold them are copied afterwards
    for graph in reversed(list(inside(rounded.graph, onnx.GraphProto))):
        nodes = [new_node for node in graph.node for new_node in _rounding(node, types)]
        del graph.node[:]
        graph.node.extend(nodes)
    return rounded


def _rounding(node, types):
    """Return the nodes that replace a node: casts, a copy of the node in float32, casts.

    A node that does not compute in float16 is returned alone.

    types  {tensor: its type}
    """
    names = [name for name in (*node.input, *node.output) if name]
    halves = [name for name in names if types.get(name) == FLOAT16]
    all_typed = all(types.get(name) for name in names)
    if not halves or not all_typed or node.op_type in AS_THEY_ARE:
        return [node]

    # A copy of the node, which computes in float32: each input in float16 is widened before it.
    before = []
    after = []
    computed = onnx.NodeProto()
    computed.CopyFrom(node)
    for index, name in enumerate(node.input):
        if name in halves:
            wide = f"{name}_in_float32_of_{node.output[0]}"
            if not any(wide in cast.output for cast in before):
                before.append(_cast(name, wide, TensorProto.FLOAT))
            computed.input[index] = wide

    # Each output in float16 is rounded after it.
    for index, name in enumerate(node.output):
        if name in halves:
            wide = f"{name}_before_rounding"
            after.append(_cast(wide, name, FLOAT16))
            computed.output[index] = wide
    return [*before, computed, *after]


def _cast(name, to_name, to_type):
    """Return a Cast node from the tensor `name` to the tensor `to_name`."""
    return helper.make_node("Cast", [name], [to_name], name=f"cast_to_{to_name}", to=to_type)
