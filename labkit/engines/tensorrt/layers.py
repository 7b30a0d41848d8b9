"""The content of a built engine: kernels, the types they compute in, and the fate of each node of the ONNX graph.

A builder with a VERBOSE logger and detailed profiling lists the kernels in one message that starts with `Layers:`.
"""

import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import onnx

from labkit.export.operators import HEAVY, RECURRENT

if TYPE_CHECKING:
    import pandas

KEYS = ("Inputs", "Constants", "Outputs", "TacticName", "StreamId", "Metadata")
PART = re.compile(rf", ({'|'.join(KEYS)}): (.*?)(?=, (?:{'|'.join(KEYS)}): |$)", re.DOTALL)  # a key and what it says
# Kinds that move, convert or wait; whatever else names a node is where its arithmetic happens.
HELPERS = ("shape_call", "signal", "wait", "memset", "reformat", "copy", "constant", "noop", "cjmp")
GENERATED = "kgen"  # element-wise work that TensorRT writes a kernel for
TYPES = {  # words of which one stands in the description of a type, in lower case; the first type that fits counts
    "int8": "int8",
    "fp8": "fp8|e4m3",
    "bf16": "bf16|bfloat16",
    "fp16": "half|fp16|float16",
    "int32": "int32",
    "int64": "int64",
    "bool": "bool",
    "fp32": "float|fp32",
}
WIDTH = {"int8": 1, "fp8": 1, "fp16": 2, "bf16": 2, "fp32": 4}
PASSING = ("Transpose", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity")  # carry values on, unchanged


@dataclass(frozen=True)
class Kernel:
    """One step of an engine.

    kind       TensorRT's name for it: "correlation" or "CaskConvolution", "gemm", "kgen" (element-wise), ...
    inputs, constants, outputs  the types of its tensors, such as ("int8", "fp32"); constants hold the weights
    nodes      names of the ONNX nodes it computes; none in the body of a loop
    """

    name: str
    kind: str
    inputs: tuple
    constants: tuple
    outputs: tuple
    nodes: tuple

    @property
    def computes(self):
        """True when it does arithmetic, rather than move data or wait."""
        return not self.kind.lower().startswith(HELPERS)

    @property
    def precision(self):
        """The type it computes in: the narrowest type of its inputs, or of its weights where that is wider."""
        sides = [[kind for kind in side if kind in WIDTH] for side in (self.inputs, self.constants)]
        narrowest = [min(side, key=WIDTH.get) for side in sides if side]
        return max(narrowest, key=WIDTH.get, default="other")


def listing(messages):
    """A line for each kernel, as the builder's log lists them; none when it does not (no detailed profiling)."""
    listings = [text for text in messages if text.startswith("Layers:")]
    lines = listings[-1].split("\n\n")[0].splitlines()[1:] if listings else []
    return tuple(line for line in lines if line.startswith("Name: "))


def kernel(line):
    """The `Kernel` of a line `Name: ..., LayerType: ..., Inputs: [...], ..., Metadata: [ONNX Layer: a][...]`."""
    name, kind, rest = re.match(r"Name: (.*?), LayerType: ([^,]*)(.*)", line, flags=re.DOTALL).groups()
    parts = dict.fromkeys(KEYS, "") | dict(PART.findall(rest))
    types = [tuple(map(_type_name, re.findall(r"Datatype: ([^,}]*)", parts[key]))) for key in KEYS[:3]]
    nodes = re.findall(r"\[ONNX Layer: ([^\]]*)\]", parts["Metadata"])
    return Kernel(name, kind, *types, tuple(dict.fromkeys(nodes)))


def flow(built: Any) -> Iterator[tuple]:
    """For each step of a `Built` its name, and the tensors that it reads, holds and writes.

    yields  (name, read, held, written); the last three {tensor: bytes for one image}
    """
    for line, step in zip(built.listing, built.kernels, strict=True):
        parts = dict.fromkeys(KEYS, "") | dict(PART.findall(line))
        yield step.name.split("_myl0")[0].removeprefix("__myl_"), *(_bytes(parts[key]) for key in KEYS[:3])


def _bytes(part):
    """{tensor: bytes} of one part of a line; a side that varies, the batch, counts once."""
    found = {}
    for name, shape, kind in re.findall(r"Name: (.*?), Dimensions: \[([-\d,]*)\].*?Datatype: ([^,}]*)", part):
        sides = [int(side) for side in shape.split(",") if side]
        found[name] = WIDTH.get(_type_name(kind), 4) * math.prod(side for side in sides if side > 0)
    return found


def _type_name(text):
    """ "Half", or "Channel major FP16 format where channel % 8 == 0", as "fp16"."""
    text = text.lower()
    return next((kind for kind, words in TYPES.items() if re.search(words, text)), text.strip() or "unknown")


def compared(model: onnx.ModelProto, kernels: Any, operators: Iterable[str] = HEAVY) -> "pandas.DataFrame":
    """Requested against actual precision: a DataFrame, one line per node of a ModelProto in the graph's order.

    operators  which nodes; None: all
    requested  the type of the node's data; or what its data and its weights were both dequantized from
    actual     what the kernel computes in that does the node's arithmetic, or "folded away"
    fused      how many other ONNX nodes the same kernel computes
    other columns  node, operator, kernel (its name), kind
    """
    import pandas as pd

    graph = onnx.shape_inference.infer_shapes(model, data_prop=True).graph
    types, made_by = _tensor_types(graph), {name: node for node in graph.node for name in node.output}
    lines = []
    for node in graph.node:
        if operators is None or node.op_type in operators:
            kernel, asked = _actual(node, kernels), _requested(node, types, made_by)
            about = ("folded away", None, None, 0)
            if kernel:
                about = (kernel.precision, kernel.name, kernel.kind, max(len(kernel.nodes) - 1, 0))
            lines.append((node.name, node.op_type, asked, *about))
    return pd.DataFrame(lines, columns=["node", "operator", "requested", "actual", "kernel", "kind", "fused"])


def _actual(node, kernels):
    """The kernel that does the arithmetic of an ONNX node, or None when it was folded away.

    A node may be named by several kernels: the one that quantizes its input, say, and the one that convolves. Kernels
    generated for element-wise work are the answer only when no other names the node. A recurrent node becomes a loop,
    in which no kernel names a node: the matrix products without a node are its.
    """
    if node.op_type in RECURRENT:
        products = [kernel for kernel in kernels if kernel.kind == "gemm" and not kernel.nodes]
        if products:
            return products[0]
    naming = [kernel for kernel in kernels if node.name in kernel.nodes and kernel.computes]
    return min(naming, key=lambda kernel: (kernel.kind == GENERATED, len(kernel.nodes)), default=None)


def _tensor_types(graph):
    """{tensor name: "fp32", "int8", ...} of everything whose type is known."""
    found = {value.name: value.type.tensor_type.elem_type for value in (*graph.input, *graph.value_info, *graph.output)}
    found |= {tensor.name: tensor.data_type for tensor in graph.initializer}
    words = {name: onnx.TensorProto.DataType.Name(number).lower() for name, number in found.items()}
    # "fp32" of ONNX's "float"; integers keep their names, unsigned ones too
    return {name: word if "int" in word else _type_name(word) for name, word in words.items()}


def _requested(node, types, made_by):
    """The precision one node asks for."""
    quantized = [_quantized_type(name, types, made_by) for name in node.input[:2]]
    if quantized and all(quantized):
        return quantized[0]
    return next((types[name] for name in (*node.input[:2], *node.output) if name in types), "unknown")


def _quantized_type(name, types, made_by):
    """The integer (or fp8) type a tensor was dequantized from, or None."""
    node = made_by.get(name)
    while node is not None and node.op_type in PASSING:
        node = made_by.get(node.input[0])
    if node is None or node.op_type != "DequantizeLinear":
        return None
    zero = node.input[2] if len(node.input) > 2 else ""
    return types.get(node.input[0]) or types.get(zero) or "uint8"
