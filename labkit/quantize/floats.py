"""Half precision written into an ONNX file: float16 for what bears it, float32 for what does not.

What     weights and activations in 16 bits; sums of exponentials and of squares, and what comes near the largest
         float16, stay in float32
When     a GPU serves the network, or INT8 changes too many answers; a file from elsewhere, or one already in INT8
Cost     half the bytes instead of a quarter; a CPU without instructions for it is no faster, and INT8+FP16 is slower
         there than float32 (0.5 to 0.9 of its speed in ONNX Runtime): such files are for GPUs
Not when the network itself is at hand: the cleanest file is then `to_onnx(model.half(), ...)`. Verify an INT8+FP16 file
         in ONNX Runtime with its optimisations off: fusing such graphs, it has been seen to compute something else
Source   Micikevicius et al. 2017, arXiv:1710.03740; the converter is onnxconverter_common.float16
"""

import warnings
from pathlib import Path
from typing import Any

import numpy as np

from labkit.export.runtime import explained, written
from labkit.quantize.observed import observe
from labkit.quantize.ptq import require_fp32

LARGEST = float(np.finfo(np.float16).max)  # 65,504
SMALLEST = float(np.finfo(np.float16).smallest_subnormal)
# Sums of exponentials, of squares: float32 keeps them exact and costs little.
SENSITIVE = ("Softmax", "LayerNormalization")


def to_fp16(src: str | Path, dst: str | Path, data: Any = None) -> Path:
    """Write a copy of an ONNX file that computes in float16, with inputs and outputs still float32: the path `dst`.

    data    an `ImageSet` or a `Calibration`: nodes whose real activations come near the largest float16 stay float32.
            Without it only the weights are looked at
    """
    from onnx.numpy_helper import to_array
    from onnxconverter_common import float16

    model = require_fp32(src, also=("int8",))
    seen = {} if data is None else observe(src, data)
    large = {name for name, histogram in seen.items() if histogram.reach > LARGEST / 2}
    weights = {tensor.name: np.abs(to_array(tensor)).max(initial=0) for tensor in model.graph.initializer}
    large |= {name for name, reach in weights.items() if reach > LARGEST}
    with explained(src, "converted to float16"), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # one for each weight that is smaller than the smallest float16
        converted = float16.convert_float_to_float16(
            model,
            keep_io_types=True,
            min_positive_val=SMALLEST,
            max_finite_val=LARGEST,
            op_block_list=[*float16.DEFAULT_OP_BLOCK_LIST, *SENSITIVE],
            node_block_list=[node.name for node in model.graph.node if _stays_in_float(node, large)],
        )
    del converted.graph.value_info[:]  # the types of what lies in between follow from the rest
    return written(converted, dst)


def _stays_in_float(node, large):
    """True for a node that touches a value of `large`, and for a cast, whose type is an attribute and stays."""
    return node.op_type == "Cast" or not large.isdisjoint([*node.input, *node.output])
