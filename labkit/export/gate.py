"""The gate for ONNX files: nothing of a file is used before it is known to be whole and to stay in its folder."""

from pathlib import Path

import onnx


def checked(path):
    """Load an ONNX file and check it: an `onnx.ModelProto`."""
    model = onnx.load(Path(path))
    onnx.checker.check_model(str(path), full_check=True)
    return model


def precision_of(model):
    """What a ModelProto holds: "int8" (Q/DQ nodes), "fp16", "bf16" (most of the weights) or "fp32"."""
    if any(node.op_type == "DequantizeLinear" for node in model.graph.node):
        return "int8"
    sizes = {"fp32": 0}
    kinds = {onnx.TensorProto.FLOAT: "fp32", onnx.TensorProto.FLOAT16: "fp16", onnx.TensorProto.BFLOAT16: "bf16"}
    for tensor in model.graph.initializer:
        kind = kinds.get(tensor.data_type)
        if kind:
            sizes[kind] = sizes.get(kind, 0) + onnx.numpy_helper.to_array(tensor).size
    return max(sizes, key=sizes.get)
