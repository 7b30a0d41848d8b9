"""What an engine consists of: the builder's listing and the inspector's JSON, and what became of each ONNX node."""

import json

import numpy as np
import onnx
import pytest
from engines import made_up_onnx as made_up

from labkit.engines.tensorrt import layers
from labkit.engines.tensorrt.layers import Kernel
from labkit.engines.tensorrt.precision import actual, compared, requested

TENSOR = (
    "{{ Name: {}, Dimensions: [-1,4,28,28], Strides: [1], StrideOrder: [0], Datatype: {}, Format: (NHWC) Channel }}"
)
# Two kernels as TensorRT-RTX 1.7 lists them, shortened.
LISTING = f"""Layers:
Name: __myl_Quant_myl0_1, LayerType: kgen, Inputs: [ {TENSOR.format("input", "Float")}], Constants: [], Outputs: [ \
{TENSOR.format("q, odd", "Int8")}], TacticName: __myl_0x6b, StreamId: 0, Metadata: [ONNX Layer: q][ONNX Layer: conv]
Name: conv_myl0_2, LayerType: correlation, Inputs: [ {TENSOR.format("q", "Int8")}, {TENSOR.format("r", "Float")}], \
Constants: [ {TENSOR.format("w", "Int8")}, {TENSOR.format("s", "Float")}], Outputs: [ {TENSOR.format("o", "Half")}], \
TacticName: __myelin_CASK_STUB, StreamId: 1, Metadata: [ONNX Layer: conv][ONNX Layer: relu]

I/O Tensors:
 Name: input, IOMode: Input, DataType: Float
"""


def kernel(**changes):
    fields = {"name": "k", "kind": "correlation", "inputs": ("fp32",), "constants": (), "outputs": ("fp32",)}
    return Kernel(**{**fields, "tactic": "", "stream": 0, "nodes": (), **changes})


def test_the_listing_of_a_log_becomes_kernels():
    first, second = layers.from_log(["something else", LISTING])
    assert (first.kind, first.inputs, first.outputs, first.nodes) == ("kgen", ("fp32",), ("int8",), ("q", "conv"))
    assert second == Kernel(
        name="conv_myl0_2",
        kind="correlation",
        inputs=("int8", "fp32"),
        constants=("int8", "fp32"),
        outputs=("fp16",),
        tactic="__myelin_CASK_STUB",
        stream=1,
        nodes=("conv", "relu"),
    )


def test_a_log_without_a_listing_gives_no_kernels():
    assert layers.from_log(["Engine generation completed"]) == ()


@pytest.mark.parametrize("key", ["Datatype", "Format/Datatype"])
def test_the_inspectors_json_becomes_the_same_kernels(key):
    entry = {
        "Name": "conv + relu",
        "LayerType": "CaskConvolution",
        "Inputs": [{"Name": "x", key: "Thirty-two wide channel vectorized row major Int8 format"}],
        "Outputs": [{"Name": "y", key: "Channel major FP16 format where channel % 8 == 0"}],
        "Weights": {"Type": "Int8", "Count": 108},
        "TacticName": "sm80_xmma_fprop_implicit_gemm_interleaved_i8i8_i8i32_f32",
        "StreamId": 0,
        "Metadata": "[ONNX Layer: conv]\x1e[ONNX Layer: relu]",
    }
    (found,) = layers.from_inspector(json.dumps({"Layers": [entry], "I/O Tensors": []}))
    assert (found.inputs, found.constants, found.outputs) == (("int8",), ("int8",), ("fp16",))
    assert found.nodes == ("conv", "relu")
    assert found.precision == "int8"


def test_an_engine_built_without_details_gives_names_alone():
    (found,) = layers.from_inspector('{"Layers": ["conv + relu"]}')
    assert (found.name, found.precision) == ("conv + relu", "other")


@pytest.mark.parametrize(
    ("inputs", "constants", "wanted"),
    [
        (("int8", "fp32"), ("int8", "fp32"), "int8"),  # a shortcut and the scales stay float
        (("fp16",), ("int8", "fp16"), "fp16"),  # weights alone are small
        (("fp16",), ("fp16", "fp32"), "fp16"),
        (("fp32",), (), "fp32"),
        (("int64",), (), "other"),
    ],
)
def test_the_precision_is_that_of_data_and_weights_together(inputs, constants, wanted):
    assert kernel(inputs=inputs, constants=constants).precision == wanted


def test_a_node_that_several_kernels_name_is_computed_by_the_one_that_does_arithmetic():
    quantize, wait = kernel(name="q", kind="kgen", nodes=("conv",)), kernel(name="w", kind="wait", nodes=("conv",))
    convolve = kernel(name="c", nodes=("conv", "relu", "add"))
    assert actual("conv", [wait, quantize, convolve]) is convolve
    assert actual("conv", [wait, quantize]) is quantize
    assert actual("elsewhere", [quantize]) is None


@pytest.mark.parametrize(("kind", "wanted"), [(np.int8, "int8"), (np.uint8, "uint8")])
def test_a_convolution_between_dequantized_tensors_asks_for_the_integers(kind, wanted):
    made = made_up.quantized(0, kind)
    scale = onnx.numpy_helper.from_array(np.full(8, 0.01, np.float32), "w_scale")
    weights = onnx.numpy_helper.from_array(np.ones((8, 3, 3, 3), kind), "w_q")
    zero = onnx.numpy_helper.from_array(np.zeros(8, kind), "w_zero")
    node = onnx.helper.make_node("DequantizeLinear", ["w_q", "w_scale", "w_zero"], ["w_dq"], axis=0)
    made.graph.node.insert(0, node)
    made.graph.initializer.extend([scale, weights, zero])
    made.graph.node[-1].input[1] = "w_dq"
    (found,) = requested(made)
    assert (found.node, found.operator, found.precision) == ("conv", "Conv", wanted)


def test_a_convolution_with_float_weights_asks_for_float_even_behind_dequantize():
    (found,) = requested(made_up.quantized())
    assert found.precision == "fp32"


def test_the_table_holds_what_was_asked_against_what_was_done():
    made = made_up.residual()
    kernels = [
        kernel(nodes=("conv1", "relu1"), inputs=("fp16",)),
        kernel(nodes=("head",), kind="gemm"),
    ]
    table = compared(made, kernels).set_index("node")
    assert list(table.index) == ["conv1", "conv2", "head"]
    assert list(table["requested"]) == ["fp32", "fp32", "fp32"]
    assert list(table["actual"]) == ["fp16", "folded away", "fp32"]
    assert list(table["fused"]) == [1, 0, 0]
