"""Half precision written into an ONNX file: casts around what bears it, float32 for what does not.

What     weights and activations in 16 bits; sums of exponentials and of squares, and what comes near the largest
         float16, stay in float32
When     a GPU serves the network, or INT8 changes too many answers; a file from elsewhere, or one already in INT8
Cost     half the bytes instead of a quarter; a CPU without instructions for it is no faster, and INT8+FP16 is slower
         there than float32 (0.5 to 0.9 of its speed in ONNX Runtime): such files are for GPUs
Not when the network itself is at hand: the cleanest file is then `to_onnx(model.half(), ...)`. Verify an INT8+FP16 file
         in ONNX Runtime with its optimisations off: fusing such graphs, it has been seen to compute something else
Source   Micikevicius et al. 2017, arXiv:1710.03740; modelopt.onnx.autocast
"""

import re
from pathlib import Path

import numpy as np

from labkit.device import packages
from labkit.export import checked
from labkit.export.runtime import explained, written
from labkit.quantize._quiet import quiet
from labkit.quantize.calibration import Calibration
from labkit.quantize.observed import observe

LARGEST = float(np.finfo(np.float16).max)  # 65,504
# Sums of exponentials, of squares: float32 keeps them exact and costs little.
SENSITIVE = ["Softmax", "LayerNormalization"]


def to_fp16(src, dst, data=None):
    """Write a copy of an ONNX file that computes in float16, with inputs and outputs still float32: the path `dst`.

    data    an `ImageSet` or a `Calibration`: nodes whose real activations come near the largest float16 stay float32.
            Without it only the weights are looked at. (NVIDIA's converter would look at random inputs instead.)
    Source  modelopt.onnx.autocast, without its reference runner
    """
    model = checked(src)
    convert = _converter()
    seen = {} if data is None else observe(src, Calibration.of(data))
    large = {name for name, histogram in seen.items() if histogram.reach > LARGEST / 2}
    exclude = [f"{re.escape(node.name)}$" for node in model.graph.node if large & {*node.input, *node.output}]
    with quiet(), explained(Path(src).name, "converted to float16"):
        converted = convert(
            str(src),
            low_precision_type="fp16",
            keep_io_types=True,
            nodes_to_exclude=exclude,
            op_types_to_exclude=SENSITIVE,
            data_max=np.inf,
        )
    return written(_each_weight_once(converted), dst)


def _each_weight_once(model):
    """The model without the copies that the converter makes of a weight for each node that reads it."""
    import onnx_ir
    from onnx_ir.passes.common import DeduplicateInitializersPass

    graph = onnx_ir.from_proto(model)
    DeduplicateInitializersPass(size_limit=2**31)(graph)
    return onnx_ir.to_proto(graph)


def _converter():
    with quiet():
        autocast = packages.imported(
            "modelopt.onnx.autocast",
            package="nvidia-modelopt",
            what="NVIDIA's model optimizer, which writes mixed precision into ONNX files, is not here.",
            fix="Linux only; or export the network in half precision: to_onnx(model.half(), example.half(), path)",
        )
    return autocast.convert_to_mixed_precision
