"""Requested against actual precision: what the ONNX graph asks of each heavy node, and what the engine does with it."""

from dataclasses import dataclass

from labkit.engines.tensorrt.layers import GENERATED

HEAVY = ("Conv", "ConvTranspose", "Gemm", "MatMul")  # where nearly all arithmetic of a network is
PASSING = ("Transpose", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity")  # carry values on, unchanged
SHORT = {"float": "fp32", "float16": "fp16", "bfloat16": "bf16", "float8e4m3fn": "fp8"}  # of ONNX's own names


@dataclass(frozen=True)
class Request:
    """A heavy node of an ONNX graph: its name, its operator, and the precision its inputs come in."""

    node: str
    operator: str
    precision: str


def requested(model):
    """A `Request` for each convolution and matrix product of a ModelProto, in the order of the graph.

    A node whose data and weights both come out of DequantizeLinear asks for the type that went in; any other asks for
    the type of its data.
    """
    import onnx

    inferred = onnx.shape_inference.infer_shapes(model, data_prop=True)
    types = tensor_types(inferred)
    made_by = {name: node for node in inferred.graph.node for name in node.output}
    return tuple(
        Request(node.name, node.op_type, asked(node, types, made_by))
        for node in inferred.graph.node
        if node.op_type in HEAVY
    )


def tensor_types(model):
    """{tensor name: "fp32", "int8", ...} of everything whose type is known."""
    from onnx import TensorProto

    graph = model.graph
    found = {value.name: value.type.tensor_type.elem_type for value in (*graph.input, *graph.value_info, *graph.output)}
    found |= {tensor.name: tensor.data_type for tensor in graph.initializer}
    return {name: SHORT.get(kind := TensorProto.DataType.Name(number).lower(), kind) for name, number in found.items()}


def asked(node, types, made_by):
    """The precision one node asks for."""
    quantized = [quantized_type(name, types, made_by) for name in node.input[:2]]
    if all(quantized):
        return quantized[0]
    return next((types[name] for name in (*node.input[:2], *node.output) if name in types), "unknown")


def quantized_type(name, types, made_by):
    """The integer (or fp8) type a tensor was dequantized from, or None."""
    node = made_by.get(name)
    while node is not None and node.op_type in PASSING:
        node = made_by.get(node.input[0])
    if node is None or node.op_type != "DequantizeLinear":
        return None
    zero = node.input[2] if len(node.input) > 2 else ""
    return types.get(node.input[0]) or types.get(zero) or "uint8"


def actual(node, kernels):
    """The kernel that does the arithmetic of an ONNX node, or None when it was folded away.

    A node may be named by several kernels: the one that quantizes its input, say, and the one that convolves. Kernels
    generated for element-wise work are the answer only when no other names the node.
    """
    naming = [kernel for kernel in kernels if node in kernel.nodes and kernel.computes]
    return min(naming, key=lambda kernel: (kernel.kind == GENERATED, len(kernel.nodes)), default=None)


def compared(model, kernels):
    """A DataFrame, one line a heavy node: node, operator, requested, actual, kernel, kind, fused.

    fused  how many other ONNX nodes the same kernel computes
    """
    import pandas as pd

    lines = []
    for request in requested(model):
        kernel = actual(request.node, kernels)
        lines.append(
            {
                "node": request.node,
                "operator": request.operator,
                "requested": request.precision,
                "actual": kernel.precision if kernel else "folded away",
                "kernel": kernel.name if kernel else None,
                "kind": kernel.kind if kernel else None,
                "fused": len(kernel.nodes) - 1 if kernel else 0,
            }
        )
    return pd.DataFrame(lines, columns=["node", "operator", "requested", "actual", "kernel", "kind", "fused"])


def placed(model, kernels):
    """A DataFrame, one line a node of a ModelProto: node, operator, kernel, kind; None for what was folded away."""
    import pandas as pd

    lines = []
    for node in model.graph.node:
        kernel = actual(node.name, kernels)
        lines.append((node.name, node.op_type, kernel and kernel.name, kernel and kernel.kind))
    return pd.DataFrame(lines, columns=["node", "operator", "kernel", "kind"])
