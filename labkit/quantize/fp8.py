"""FP8 (E4M3) written into an ONNX file: eight bits that keep an exponent.

What     a sign, four bits of exponent and three of mantissa, for numbers from 2**-9 to 448. The
         step of the grid grows with the number: rounding changes a number by a sixteenth of its
         size at most. So one scale per tensor is enough
When     small values must keep their precision next to large ones, and the GPU is of SM89 (Ada,
         Hopper) or later
Cost     calibration data, for the largest value of each activation
Not when all values are of similar size: then INT8 is finer. Nor on a CPU or an older GPU: they
         cannot compute in FP8
Source   Micikevicius et al. 2022, arXiv:2209.05433; ONNX operator set 19
"""

import numpy as np

from labkit.errors import LabError
from labkit.export.operators import QUANTIZED
from labkit.export.write import write_model
from labkit.quantize.activation_ranges import observe
from labkit.quantize.preparation import prepared_for_quantizer
from labkit.quantize.smoothing import inserted, new_value

LARGEST = 448.0  # of E4M3
FIRST_OPSET = 19


def to_fp8(src, dst, data):
    """Write a copy of an ONNX file whose convolutions and matrix products read FP8 numbers.

    src, dst  paths of the file and of the copy
    data      an `ImageSet`, a `Calibration`, or the result of `observe`. It gives the scale of each
              activation: its largest absolute value over 448
    returns   the path `dst`
    Raises    LabError: no data; a file with an ONNX operator set before 19

    Activations and weights have one scale per tensor.
    """
    import onnx_ir
    from onnx_ir.passes.common import RemoveUnusedNodesPass

    model = prepared_for_quantizer(src)
    opset = model.opset_import[0].version
    if opset < FIRST_OPSET:
        raise LabError(
            "This file is too old for FP8.",
            expected=f"operator set {FIRST_OPSET} or later",
            found=f"operator set {opset}",
            fix="export the model anew",
        )
    histograms = observe(model, data)
    fp8_model = onnx_ir.from_proto(model)
    through_fp8 = {}  # {value: the value converted to FP8 and back}
    for node in list(fp8_model.graph):
        if node.op_type in QUANTIZED:
            for index, value in enumerate(node.inputs[:2]):
                if value not in through_fp8:
                    through_fp8[value] = _through_fp8(node, value, histograms)
                node.replace_input_with(index, through_fp8[value])
    RemoveUnusedNodesPass()(fp8_model)  # the float weights that nothing reads any more
    return write_model(
        onnx_ir.to_proto(fp8_model), dst, quantized="fp8 (E4M3), one scale per tensor"
    )


def _through_fp8(reader, value, histograms):
    """Insert nodes that round a value to FP8 and convert it back. Returns the rounded value.

    An activation gets QuantizeLinear and DequantizeLinear. A weight is stored in FP8, and gets
    DequantizeLinear only.

    reader      the node that reads the value; the new nodes come before it
    value       a value of the graph
    histograms  result of `observe`
    """
    import ml_dtypes

    float8 = ml_dtypes.float8_e4m3fn
    name = value.name
    if value.is_initializer():
        weights = value.const_value.numpy()
        largest_value = float(np.abs(weights).max())
    else:
        weights = None
        largest_value = histograms[name].upper_edge
    # One scale for the whole tensor; that of zeros alone is 1.
    scale = np.float32(largest_value / LARGEST or 1)
    grid = [
        new_value(reader.graph, f"{name}_scale", scale),
        new_value(reader.graph, f"{name}_zero", 0, float8),
    ]
    if weights is None:
        quantized = inserted(reader, "QuantizeLinear", [value, *grid], f"{name}_fp8")
    else:
        clipped = (weights / scale).clip(-LARGEST, LARGEST)
        quantized = new_value(reader.graph, f"{name}_fp8", clipped, float8)
    return inserted(reader, "DequantizeLinear", [quantized, *grid], f"{name}_from_fp8")
