"""The layers that do nearly all the arithmetic of a graph: convolutions and matrix products with weights."""

import onnx
from onnx import numpy_helper

from labkit.export.gate import checked
from labkit.export.inputs import dims

WEIGHTED = ("Conv", "Gemm", "MatMul")


def layers(path, batch=1):
    """A DataFrame, one line a convolution or matrix product with stored weights, in the order of the graph.

    columns  node, operator, weights (its shape), output (its shape for this batch size), parameters (bias included)
    """
    import pandas as pd

    model = checked(path)
    stored = {tensor.name: tensor for tensor in model.graph.initializer}
    inferred = onnx.shape_inference.infer_shapes(model, data_prop=True).graph
    shapes = {value.name: dims(value) for value in (*inferred.value_info, *inferred.output)}
    lines = []
    for node in model.graph.node:
        held = [stored[name] for name in node.input if name in stored]
        if node.op_type in WEIGHTED and held:
            output = tuple(side if isinstance(side, int) else batch for side in shapes[node.output[0]])
            size = sum(numpy_helper.to_array(tensor).size for tensor in held)
            lines.append((node.name, node.op_type, tuple(held[0].dims), output, size))
    return pd.DataFrame(lines, columns=["node", "operator", "weights", "output", "parameters"])
