"""What an engine consists of: the builder's listing and the inspector's JSON, and what became of
each ONNX node.
"""

from types import SimpleNamespace

import numpy as np
import onnx
import pytest
from engines import made_up_onnx as made_up

from labkit.engines.tensorrt import build, compared, layers
from labkit.engines.tensorrt.layers import Kernel

TENSOR = (
    "{{ Name: {}, Dimensions: [-1,4,28,28], Strides: [1], StrideOrder: [0], Datatype: {}, Format: "
    "(NHWC) Channel }}"
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
    fields = {
        "name": "k",
        "kind": "correlation",
        "inputs": ("fp32",),
        "constants": (),
        "outputs": ("fp32",),
    }
    return Kernel(**{**fields, "nodes": (), **changes})


def test_the_listing_of_a_log_becomes_kernels():
    first, second = map(layers.kernel, layers.listing(["something else", LISTING]))
    assert (first.kind, first.inputs, first.outputs, first.nodes) == (
        "kgen",
        ("fp32",),
        ("int8",),
        ("q", "conv"),
    )
    assert second == Kernel(
        name="conv_myl0_2",
        kind="correlation",
        inputs=("int8", "fp32"),
        constants=("int8", "fp32"),
        outputs=("fp16",),
        nodes=("conv", "relu"),
    )


def test_the_listing_says_how_many_bytes_of_one_image_a_step_reads_holds_and_writes():
    lines = layers.listing([LISTING])
    first, second = layers.flow(
        SimpleNamespace(listing=lines, kernels=tuple(map(layers.kernel, lines)))
    )
    numbers = 4 * 28 * 28
    assert first == ("Quant", {"input": 4 * numbers}, {}, {"q, odd": numbers})
    read, held, written = (
        {"q": numbers, "r": 4 * numbers},
        {"w": numbers, "s": 4 * numbers},
        {"o": 2 * numbers},
    )
    assert second == ("conv", read, held, written)


def test_a_log_without_a_listing_lists_nothing():
    assert layers.listing(["Engine generation completed"]) == ()


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
    made = made_up.residual()
    quantize, wait = (
        kernel(name="q", kind="kgen", nodes=("conv1",)),
        kernel(name="w", kind="wait", nodes=("conv1",)),
    )
    convolve = kernel(name="c", nodes=("conv1", "relu1"))
    assert compared(made, [wait, quantize, convolve], None)["kernel"].dropna().tolist() == [
        "c",
        "c",
    ]
    assert compared(made, [wait, quantize], None)["kernel"].dropna().tolist() == ["q"]


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
    (found,) = compared(made, []).itertuples()
    assert (found.node, found.operator, found.requested) == ("conv", "Conv", wanted)


def test_a_convolution_with_float_weights_asks_for_float_even_behind_dequantize():
    assert compared(made_up.quantized(), [])["requested"].tolist() == ["fp32"]


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


@pytest.mark.parametrize("kind", ["GRU", "LSTM"])
def test_a_recurrent_layer_is_listed_and_computed_by_the_products_of_its_loop(kind, tmp_path):
    pytest.importorskip("tensorrt_rtx_bindings", exc_type=ImportError)
    gates = {"GRU": 3, "LSTM": 4}[kind]
    nodes = [
        onnx.helper.make_node(
            kind, ["input", "w", "r"], ["", "last"], name="memory", hidden_size=8
        ),
        onnx.helper.make_node("Squeeze", ["last", "zero"], ["state"], name="squeeze"),
        onnx.helper.make_node("Gemm", ["state", "w3"], ["logits"], name="head"),
    ]
    weights = [made_up.initializer("w", 1, 8 * gates, 5), made_up.initializer("r", 1, 8 * gates, 8)]
    weights += [
        made_up.initializer("w3", 8, 10),
        onnx.numpy_helper.from_array(np.array([0]), "zero"),
    ]
    made = made_up.model(nodes, weights, output=(4, 10), shape=(6, 4, 5))
    built = build(made_up.save(made, tmp_path))
    table = compared(built.source.model, built.kernels).set_index("node")
    assert list(table.index) == ["memory", "head"]
    assert (table.loc["memory", "operator"], table.loc["memory", "requested"]) == (kind, "fp32")
    assert table.loc["memory", "actual"] == "fp32"
