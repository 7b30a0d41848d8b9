"""FP8 (E4M3) written into an ONNX file: eight bits that keep an exponent.

What     a sign, four bits of exponent, three of mantissa: from 2**-9 to 448, with a step that grows with the number, so
         that rounding moves it by a sixteenth at most; one scale per tensor is enough
When     small values must keep their precision next to large ones, and the GPU is of SM89 (Ada, Hopper) or later
Cost     calibration data, for the largest value of each activation
Not when all values are of one size: INT8 is finer then; on a CPU or an older GPU, which cannot compute in it
Source   Micikevicius et al. 2022, arXiv:2209.05433; ONNX operator set 19
"""

import numpy as np

from labkit.errors import LabError
from labkit.export.operators import QUANTIZED
from labkit.export.runtime import written
from labkit.quantize.calibration import Calibration
from labkit.quantize.observed import observe
from labkit.quantize.ptq import prepared

LARGEST = 448.0  # of E4M3
FIRST_OPSET = 19


def to_fp8(src, dst, data):
    """Write a copy of an ONNX file whose heavy operators read FP8 activations and weights: the path `dst`.

    data    an `ImageSet`, a `Calibration`, or what `observe` returned: the scale of an activation is its largest value
            over 448. Weights have one scale per tensor
    Raises  LabError: no data; an operator set before 19
    """
    from onnxruntime.quantization.onnx_model import ONNXModel

    model = prepared(src)
    opset = model.opset_import[0].version
    if opset < FIRST_OPSET:
        raise LabError("This file is too old for FP8.", expected=f"operator set {FIRST_OPSET}", found=opset)
    seen = data if isinstance(data, dict) else observe(model, Calibration.of(data))
    stored = {tensor.name: tensor for tensor in model.graph.initializer}
    nodes, made = [], {}
    for node in model.graph.node:
        if node.op_type in QUANTIZED:
            for place, name in enumerate(node.input[:2]):
                if name not in made:
                    made[name], new = _pair(model.graph, name, stored.get(name), seen)
                    nodes += new
                node.input[place] = made[name]
        nodes.append(node)
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    ONNXModel(model).clean_initializers()  # the float weights that nothing reads any more
    return written(model, dst, quantized="fp8 (E4M3), one scale per tensor")


def _pair(graph, name, weights, seen):
    """(name of the tensor that comes back from FP8, the new nodes): Q and DQ, or DQ alone for stored weights."""
    import ml_dtypes
    import onnx

    float8 = ml_dtypes.float8_e4m3fn
    values = None if weights is None else onnx.numpy_helper.to_array(weights)
    reach = seen[name].reach if values is None else float(np.abs(values).max())
    scale = np.float32(reach / LARGEST or 1)
    constants = {f"{name}_scale": scale, f"{name}_zero": np.array(0, float8)}
    grid, back = [f"{name}_scale", f"{name}_zero"], f"{name}_from_fp8"
    quantized, nodes = f"{name}_fp8", []
    if values is None:
        nodes.append(onnx.helper.make_node("QuantizeLinear", [name, *grid], [quantized], f"{name}_to_fp8"))
    else:
        constants[quantized] = (values / scale).clip(-LARGEST, LARGEST).astype(float8)
    nodes.append(onnx.helper.make_node("DequantizeLinear", [quantized, *grid], [back], back))
    graph.initializer.extend(onnx.numpy_helper.from_array(np.asarray(array), key) for key, array in constants.items())
    return back, nodes
