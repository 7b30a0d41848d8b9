"""Small ONNX models made by hand, for what needs no trained network: fast, and every name is
known.
"""

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

FLOAT, HALF = TensorProto.FLOAT, TensorProto.FLOAT16
SHAPE = ("batch", 3, 8, 8)


def initializer(name, *shape, kind=np.float32, seed=0):
    values = np.random.default_rng(seed).standard_normal(shape) if shape else np.array(0.0)
    return numpy_helper.from_array((0.3 * values).astype(kind), name)


def model(nodes, initializers=(), *, output=("batch", None), kind=FLOAT, domains=(), shape=SHAPE):
    """A ModelProto from "input" to "logits"."""
    graph = helper.make_graph(
        nodes,
        "made_up",
        [helper.make_tensor_value_info("input", FLOAT, shape)],
        [helper.make_tensor_value_info("logits", kind, output)],
        list(initializers),
    )
    imports = [helper.make_opsetid("", 20), *(helper.make_opsetid(domain, 1) for domain in domains)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10)


def save(made, folder, name="made_up.onnx"):
    """Write a model; returns its path."""
    onnx.save(made, folder / name)
    return folder / name


def residual(*, seed=0):
    """Two convolutions with a shortcut around the second, then a classifier: (N, 3, 8, 8) -> (N,
    10).
    """
    nodes = [
        helper.make_node("Conv", ["input", "w1"], ["c1"], name="conv1", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c1"], ["r1"], name="relu1"),
        helper.make_node("Conv", ["r1", "w2"], ["c2"], name="conv2", pads=[1, 1, 1, 1]),
        helper.make_node("Add", ["c2", "r1"], ["sum"], name="shortcut"),
        helper.make_node("Relu", ["sum"], ["r2"], name="relu2"),
        helper.make_node("GlobalAveragePool", ["r2"], ["mean"], name="pool"),
        helper.make_node("Flatten", ["mean"], ["flat"], name="flatten"),
        helper.make_node("Gemm", ["flat", "w3"], ["logits"], name="head"),
    ]
    weights = [
        initializer("w1", 16, 3, 3, 3, seed=seed),
        initializer("w2", 16, 16, 3, 3, seed=seed + 1),
    ]
    return model(nodes, [*weights, initializer("w3", 16, 10, seed=seed + 2)], output=("batch", 10))


def quantized(zero=0, kind=np.int8):
    """A convolution behind a Q/DQ pair with this zero point."""
    nodes = [
        helper.make_node("QuantizeLinear", ["input", "scale", "zero"], ["q"], name="quantize"),
        helper.make_node("DequantizeLinear", ["q", "scale", "zero"], ["dq"], name="dequantize"),
        helper.make_node("Conv", ["dq", "w"], ["logits"], name="conv"),
    ]
    scale = numpy_helper.from_array(np.float32(0.05), "scale")
    zero = numpy_helper.from_array(np.array(zero, kind), "zero")
    return model(nodes, [initializer("w", 8, 3, 3, 3), scale, zero], output=("batch", 8, 6, 6))


def int32_bias():
    """A convolution whose bias was quantized to int32, as ONNX Runtime does by default."""
    nodes = [
        helper.make_node("DequantizeLinear", ["b", "scale", "zero"], ["bias"], name="bias_dq"),
        helper.make_node("Conv", ["input", "w", "bias"], ["logits"], name="conv"),
    ]
    bias = numpy_helper.from_array(np.arange(8, dtype=np.int32), "b")
    scale, zero = (
        numpy_helper.from_array(np.float32(0.05), "scale"),
        numpy_helper.from_array(np.int32(0), "zero"),
    )
    return model(
        nodes, [initializer("w", 8, 3, 3, 3), bias, scale, zero], output=("batch", 8, 6, 6)
    )


def mixed_types():
    """A float32 and a float16 tensor added: valid for nobody who checks types."""
    nodes = [
        helper.make_node("Cast", ["input"], ["half"], name="to_half", to=HALF),
        helper.make_node("Add", ["input", "half"], ["logits"], name="mixed_add"),
    ]
    return model(nodes, output=SHAPE)


def one_node(operator, domain="", *, kind=FLOAT, output=SHAPE, **attributes):
    """A model of a single node on the input."""
    node = helper.make_node(
        operator, ["input"], ["logits"], name="the_node", domain=domain, **attributes
    )
    return model([node], output=output, kind=kind, domains=[domain] if domain else ())
