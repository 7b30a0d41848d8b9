"""Read what is in a built engine: its kernels, their types, and which ONNX nodes each computes.

The builder lists the kernels in one log message that starts with `Layers:`. It does so only with a
VERBOSE logger and detailed profiling.
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
_KEY = "|".join(KEYS)
FIELD = re.compile(rf", ({_KEY}): (.*?)(?=, (?:{_KEY}): |$)", re.DOTALL)  # a key and its text
# Kinds of kernels that move, convert or wait; any other kernel that names a node does arithmetic.
HELPERS = ("shape_call", "signal", "wait", "memset", "reformat", "copy", "constant", "noop", "cjmp")
GENERATED = "kgen"  # element-wise work that TensorRT writes a kernel for
# {type: pattern of its description, in lower case}; the first type whose pattern fits counts
TYPES = {
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
# operators that carry values on, unchanged
PASSING = ("Transpose", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity")


@dataclass(frozen=True)
class Kernel:
    """One step of an engine.

    name             TensorRT's name of the step
    kind             TensorRT's name for the kind of step: "correlation" or "CaskConvolution",
                     "gemm", "kgen" (element-wise), ...
    inputs, outputs  types of the tensors that the step reads and writes, such as ("int8", "fp32")
    constants        types of the constants that it holds, such as its weights
    nodes            names of the ONNX nodes that the step computes; () in the body of a loop
    """

    name: str
    kind: str
    inputs: tuple
    constants: tuple
    outputs: tuple
    nodes: tuple

    @property
    def computes(self):
        """Return True if the step does arithmetic, False if it moves or converts data, or waits."""
        return not self.kind.lower().startswith(HELPERS)

    @property
    def precision(self):
        """Return the type in which the step computes, such as "int8"; "other" if it is unknown.

        It is the narrowest type of the inputs or the narrowest type of the constants, whichever of
        the two is wider.
        """
        narrowest = []
        for types in (self.inputs, self.constants):
            numbers = [type_name for type_name in types if type_name in WIDTH]
            if numbers:
                narrowest.append(min(numbers, key=WIDTH.get))
        return max(narrowest, key=WIDTH.get, default="other")


def listing(messages: Iterable[str]) -> tuple[str, ...]:
    """Return the builder's line for each kernel of an engine; () without detailed profiling.

    messages  the VERBOSE messages of the builder's log
    """
    listings = [text for text in messages if text.startswith("Layers:")]
    if not listings:
        return ()
    lines = listings[-1].split("\n\n")[0].splitlines()[1:]
    return tuple(line for line in lines if line.startswith("Name: "))


def kernel(line: str) -> Kernel:
    """Parse a line of the listing into a `Kernel`.

    line  `Name: ..., LayerType: ..., Inputs: [...], ..., Metadata: [ONNX Layer: a][...]`
    """
    pattern = r"Name: (.*?), LayerType: ([^,]*)(.*)"
    [(name, kind, text)] = re.findall(pattern, line, flags=re.DOTALL)
    fields = _fields_of(text)
    nodes = re.findall(r"\[ONNX Layer: ([^\]]*)\]", fields["Metadata"])
    return Kernel(
        name,
        kind,
        inputs=_types_in(fields["Inputs"]),
        constants=_types_in(fields["Constants"]),
        outputs=_types_in(fields["Outputs"]),
        nodes=tuple(dict.fromkeys(nodes)),
    )


def _fields_of(line):
    """Split a line of the listing into its fields: {key: text} for each of `KEYS`.

    A key that the line does not have gets "".
    """
    return dict.fromkeys(KEYS, "") | dict(FIELD.findall(line))


def _types_in(field):
    """Return the types of the tensors in one field of a line, such as ("int8", "fp32")."""
    return tuple(map(type_name, re.findall(r"Datatype: ([^,}]*)", field)))


def flow(built: Any) -> Iterator[tuple]:
    """Yield for each step of an engine the tensors that it reads, holds and writes.

    Yields (name of the step, tensors read, constants held, tensors written). The last three are
    {tensor: bytes}, for one image.

    built  a `Built` of `labkit.engines.tensorrt.builder`
    """
    for line, step in zip(built.listing, built.kernels, strict=True):
        fields = _fields_of(line)
        name = step.name.split("_myl0")[0].removeprefix("__myl_")
        yield name, _bytes(fields["Inputs"]), _bytes(fields["Constants"]), _bytes(fields["Outputs"])


def _bytes(field):
    """Return the size of each tensor in one field of a line: {tensor: bytes}.

    A side that may vary, such as the batch, counts as 1.
    """
    sizes = {}
    for name, shape, kind in re.findall(
        r"Name: (.*?), Dimensions: \[([-\d,]*)\].*?Datatype: ([^,}]*)", field
    ):
        sides = [int(side) for side in shape.split(",") if side]
        elements = math.prod(side for side in sides if side > 0)
        sizes[name] = WIDTH.get(type_name(kind), 4) * elements
    return sizes


def type_name(description: str) -> str:
    """Return the short name, such as "fp16", of a type that TensorRT describes in words.

    "Half" and "Channel major FP16 format where channel % 8 == 0" are both "fp16". The short names
    are the keys of `TYPES`. A description that matches none of them is returned in lower case; an
    empty one becomes "unknown".
    """
    description = description.lower()
    for name, words in TYPES.items():
        if re.search(words, description):
            return name
    return description.strip() or "unknown"


def compared(
    model: onnx.ModelProto, kernels: Any, operators: Iterable[str] = HEAVY
) -> "pandas.DataFrame":
    """Compare the precision that each node asks for with the one in which an engine computes it.

    Returns a DataFrame with a row for each node, in the order of the graph. Its columns:

    node, operator  name and operator of the ONNX node
    requested       the type that the node asks for: the type from which its data and its weights
                    are dequantized, if both are; otherwise the type of its data
    actual          the type in which the engine computes the node; "folded away" if no kernel
                    computes it
    kernel, kind    name and kind of the kernel that does the node's arithmetic; None without a
                    kernel
    fused           how many other ONNX nodes this kernel computes

    model      the ONNX model
    kernels    the engine's `Kernel`s
    operators  only nodes of these operators are compared; None: all nodes
    """
    import pandas as pd

    graph = onnx.shape_inference.infer_shapes(model, data_prop=True).graph
    types = _tensor_types(graph)
    made_by = {name: node for node in graph.node for name in node.output}
    # A row for each node; one without a kernel was folded away.
    rows = []
    for node in graph.node:
        if operators is not None and node.op_type not in operators:
            continue
        row = {
            "node": node.name,
            "operator": node.op_type,
            "requested": _requested(node, types, made_by),
        }
        kernel = _actual(node, kernels)
        if kernel:
            fused = max(len(kernel.nodes) - 1, 0)
            row |= {
                "actual": kernel.precision,
                "kernel": kernel.name,
                "kind": kernel.kind,
                "fused": fused,
            }
        else:
            row |= {"actual": "folded away", "kernel": None, "kind": None, "fused": 0}
        rows.append(row)
    return pd.DataFrame(
        rows, columns=["node", "operator", "requested", "actual", "kernel", "kind", "fused"]
    )


def _actual(node, kernels):
    """Return the kernel that does the arithmetic of an ONNX node; None if the node was folded away.

    Several kernels may name the node: one that quantizes its input, for example, and one that
    convolves. A kernel that TensorRT has generated for element-wise work is chosen only if no other
    names the node. Among the rest, the kernel with the fewest nodes is chosen. A recurrent node
    becomes a loop, whose kernels name no node: for it, the first matrix product without a node is
    chosen.
    """
    if node.op_type in RECURRENT:
        products = [kernel for kernel in kernels if kernel.kind == "gemm" and not kernel.nodes]
        if products:
            return products[0]
    naming = [kernel for kernel in kernels if node.name in kernel.nodes and kernel.computes]
    return min(
        naming, key=lambda kernel: (kernel.kind == GENERATED, len(kernel.nodes)), default=None
    )


def _tensor_types(graph):
    """Return the types of a graph's tensors: {tensor name: "fp32", "int8", ...}.

    graph  a GraphProto with inferred types; a tensor without one is left out
    """
    numbers = {}  # {tensor name: ONNX's number of its type}
    for value in (*graph.input, *graph.value_info, *graph.output):
        numbers[value.name] = value.type.tensor_type.elem_type
    for tensor in graph.initializer:
        numbers[tensor.name] = tensor.data_type
    types = {}
    for name, number in numbers.items():
        word = onnx.TensorProto.DataType.Name(number).lower()
        # "fp32" of ONNX's "float"; integers keep their names, unsigned ones too
        types[name] = word if "int" in word else type_name(word)
    return types


def _requested(node, types, made_by):
    """Return the type in which a node asks to be computed, such as "int8", or "unknown".

    If its first two inputs are both dequantized, it is the type from which they are dequantized.
    Otherwise it is the type of the node's data.

    node     a NodeProto
    types    result of `_tensor_types`
    made_by  {name of a tensor: the node that computes it}
    """
    quantized = [_quantized_type(name, types, made_by) for name in node.input[:2]]
    if quantized and all(quantized):
        return quantized[0]
    for name in (*node.input[:2], *node.output):
        if name in types:
            return types[name]
    return "unknown"


def _quantized_type(name, types, made_by):
    """Return the type from which a tensor is dequantized, an integer type or "fp8"; else None.

    types, made_by  as in `_requested`
    """
    node = made_by.get(name)
    while node is not None and node.op_type in PASSING:
        node = made_by.get(node.input[0])
    if node is None or node.op_type != "DequantizeLinear":
        return None
    zero_point = node.input[2] if len(node.input) > 2 else ""
    return types.get(node.input[0]) or types.get(zero_point) or "uint8"
