"""A network as an ONNX file: written, checked, compared with the original, looked into, simplified."""

from labkit.export.from_torch import OPSET, to_onnx
from labkit.export.gate import checked, precision_of
from labkit.export.inputs import random_inputs
from labkit.export.layers import layers
from labkit.export.operators import LEVELS, as_written, nodes, operator_times, operators
from labkit.export.parity import Parity, parity
from labkit.export.simplify import PASSES, runtime_graph, simplify

__all__ = [
    "LEVELS",
    "OPSET",
    "PASSES",
    "Parity",
    "as_written",
    "checked",
    "layers",
    "nodes",
    "operator_times",
    "operators",
    "parity",
    "precision_of",
    "random_inputs",
    "runtime_graph",
    "simplify",
    "to_onnx",
]
