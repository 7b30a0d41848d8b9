"""A network as an ONNX file: written, checked, compared with the original, looked into, simplified."""

from labkit.export.from_torch import OPSET, to_onnx
from labkit.export.gate import checked, precision_of
from labkit.export.inputs import random_inputs
from labkit.export.parity import Parity, parity

__all__ = ["OPSET", "Parity", "checked", "parity", "precision_of", "random_inputs", "to_onnx"]
