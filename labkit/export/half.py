"""Run a float16 file on a CPU so that each result is rounded to float16, as the file says.

ONNX Runtime has hardly any float16 kernels for CPUs. It computes an operator in float32, between a
cast to float32 and a cast back. Between two such operators it leaves out both casts. So a chain of
operators is computed in float32 from its first to its last, and the error of float16 does not show.

Example  x + 2048 - 2048 in float16 rounds x to an even number, because float16 numbers above 2048
         are 2 apart. Without the roundings in between, the result is x.

Here casts are written into the graph around every operator on float16: its inputs are cast to
float32, its result is cast to float16. ONNX Runtime does not remove a cast of the file that loses
digits.

Limits  the sums inside an operator are computed in float32, as on GPUs. A GPU that fuses two
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
    """Return a copy of a ModelProto whose operators on float16 compute in float32 between casts.

    A node that reads or writes a tensor of unknown type is not changed.
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
    """Return the nodes that replace a node: casts to float32, a copy of the node, casts to float16.

    A node that does not compute in float16 is returned alone.

    types  {name of a tensor: its ONNX type}
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
