"""Half precision written into an ONNX file: float16 where its range suffices, float32 elsewhere.

What     weights and activations in 16 bits. Sums of exponentials, sums of squares and values near
         the largest float16 stay in float32
When     a GPU serves the network, or INT8 changes too many answers; and only an ONNX file is at
         hand, in fp32 or already in INT8
Cost     a file of half the size, where INT8 gives a quarter. A CPU without float16 instructions
         gets no faster. INT8+FP16 is slower there than float32 (0.5 to 0.9 of its speed in ONNX
         Runtime): such files are for GPUs
Not when the network itself is at hand: `to_onnx(model.half(), ...)` then writes a cleaner file.
         Verify an INT8+FP16 file in ONNX Runtime with its optimisations off: with them, ONNX
         Runtime has been seen to fuse such a graph into one that computes something else
Source   Micikevicius et al. 2017, arXiv:1710.03740; the converter is onnxconverter_common.float16
"""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from labkit.device import packages
from labkit.errors import LabError
from labkit.export import precision_of
from labkit.export.runtime import explained
from labkit.export.walk import inside
from labkit.export.write import write_model
from labkit.quantize.activation_ranges import observe
from labkit.quantize.preparation import require_fp32

LARGEST = float(np.finfo(np.float16).max)  # 65,504
SMALLEST = float(np.finfo(np.float16).smallest_subnormal)
# Sums of exponentials, of squares: float32 keeps them exact and costs little.
SENSITIVE = ("Softmax", "LayerNormalization")
# ONNX Runtime adds no float16 in the first two on a CPU; its optimized LSTM in float16 ends the
# process.
WITHOUT_KERNEL = ("ScatterElements", "ScatterND", "LSTM")
FLOAT32 = onnx.TensorProto.FLOAT


def to_fp16(src: str | Path, dst: str | Path, data: Any = None) -> Path:
    """Write a copy of an ONNX file that computes in float16. Its inputs and outputs stay float32.

    src, dst  paths of the file, in fp32 or INT8, and of the copy
    data      an `ImageSet` or a `Calibration`: nodes that read or write values near the largest
              float16, 65,504, on these data stay in float32. None: only the weights are examined
    returns   the path `dst`
    Raises    LabError: the file is neither in fp32 nor in INT8; the copy cannot be opened; the copy
              of a file in fp32 answers random inputs differently
    """
    converter = "The package that writes half precision into ONNX graphs is missing."
    float16 = packages.imported(
        "onnxconverter_common.float16",
        problem=converter,
        fix=packages.install("onnxconverter-common"),
    )

    model = require_fp32(src, also=("int8",))
    in_fp32 = precision_of(model) == "fp32"
    histograms = {} if data is None else observe(src, data)
    model = _with_constants_as_weights(model)
    large = {name for name, histogram in histograms.items() if histogram.upper_edge > LARGEST / 2}
    large |= _large_weights(model)

    # Blocked nodes compute in float32, with weights of their own.
    blocked_types = {*float16.DEFAULT_OP_BLOCK_LIST, *SENSITIVE, *WITHOUT_KERNEL}
    for number, node in enumerate(model.graph.node):
        node.name = node.name or f"node_{number}"  # the converter knows them by their names
    blocked = [
        node
        for node in model.graph.node
        if node.op_type in blocked_types or _stays_in_float(node, large)
    ]
    _separate_weights(model, blocked)

    with explained(src, "converted to float16"), warnings.catch_warnings():
        # the converter warns of each weight that is smaller than the smallest float16
        warnings.simplefilter("ignore")
        converted = float16.convert_float_to_float16(
            model,
            keep_io_types=True,
            min_positive_val=SMALLEST,
            max_finite_val=LARGEST,
            op_block_list=list(blocked_types),
            node_block_list=[node.name for node in blocked],
        )
    del converted.graph.value_info[:]  # the types of values in between follow from the nodes

    # The answers of an INT8 file change when its scales are rounded. So only the copy of a file in
    # fp32 is compared with it here; for INT8, real data have to show what is lost.
    try:
        return write_model(converted, dst, original=src if in_fp32 else None)
    except LabError as error:
        if data is None:
            error.fix = f"--data: what overflows on real data then stays in float32; or {error.fix}"
        raise


def _stays_in_float(node, large):
    """Return True for a Cast node, and for a node that reads or writes a value named in `large`.

    A Cast stays as it is because its output type is an attribute, which the converter does not
    change.

    large  set of the names of values too large for float16
    """
    return node.op_type == "Cast" or not large.isdisjoint([*node.input, *node.output])


def _with_constants_as_weights(model):
    """Return a copy of a ModelProto with its Constant nodes replaced by stored weights."""
    import onnx_ir
    from onnx_ir.passes.common import LiftConstantsToInitializersPass

    graph = onnx_ir.from_proto(model)
    LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0)(graph)
    return onnx_ir.to_proto(graph)


def _large_weights(model):
    """Return the names of the stored weights with a value beyond the largest float16."""
    from onnx.numpy_helper import to_array

    large = set()
    for tensor in model.graph.initializer:
        values = to_array(tensor)
        if (
            values.dtype == np.float32
            and np.abs(values[np.isfinite(values)]).max(initial=0) > LARGEST
        ):
            large.add(tensor.name)
    return large


def _separate_weights(model, blocked):
    """Give each node in float32 its own copy of every weight that a node in float16 reads as well.

    The converter gives each weight one type: without a copy, the shared weight would be float16 for
    both nodes. The function changes `model`. It also deletes the types that the file declares for
    weights, because by such a declaration the converter would round a weight and cast it back.

    blocked  the nodes that stay in float32
    """
    # The names that other nodes read, also those inside branches and loops.
    weights = {
        tensor.name: tensor for tensor in model.graph.initializer if tensor.data_type == FLOAT32
    }
    blocked_names = {node.name for node in blocked}
    shared = set()
    for node in inside(model.graph, onnx.NodeProto):
        if node.name not in blocked_names:
            shared.update(node.input)

    # A copy for each blocked node that shares weights with them.
    for node in blocked:
        for index, name in enumerate(node.input):
            if name in weights and name in shared:
                copied = model.graph.initializer.add()
                copied.CopyFrom(weights[name])
                copied.name = f"{name}_of_{node.name}"
                node.input[index] = copied.name

    stored = {tensor.name for tensor in model.graph.initializer}
    described = [value for value in model.graph.value_info if value.name not in stored]
    del model.graph.value_info[:]
    model.graph.value_info.extend(described)
