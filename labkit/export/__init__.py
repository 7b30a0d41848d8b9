"""Write a network as an ONNX file; check, inspect and run the file; compare it with the network."""
# ruff: noqa: F401 (what is offered here)

from labkit.export.architecture import network_with
from labkit.export.from_torch import to_onnx
from labkit.export.gate import checked, precision_of
from labkit.export.inputs import inputs_from, random_inputs
from labkit.export.operators import node_times, nodes, operator_times, operators
from labkit.export.parity import parity
from labkit.export.runtime import as_written, session
from labkit.export.runtime_graph import runtime_graph
