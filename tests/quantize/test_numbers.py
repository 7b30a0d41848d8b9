"""Quantization by hand: worked numbers, then torch and ONNX as second implementations."""

import numpy as np
import onnx
import pytest
import torch
from onnx.reference import ReferenceEvaluator

from labkit.errors import LabError
from labkit.quantize.integer_grid import (
    dequantize,
    integer_range,
    quantize,
    scale_zero_point,
    sqnr_db,
    value_range,
)

RANDOM = np.random.default_rng(0)


def round_trip(x, *, bits=8, symmetric=True, axis=None, clip=None):
    """x quantized and dequantized again, on a grid that covers it, or ends at `clip`."""
    low, high = value_range(x, axis)
    if clip is not None:
        low = np.maximum(low, -clip)
        high = np.minimum(high, clip)
    scale, zero_point = scale_zero_point(low, high, bits=bits, symmetric=symmetric)
    integers = quantize(x, scale, zero_point, bits=bits, symmetric=symmetric, axis=axis)
    return dequantize(integers, scale, zero_point, axis=axis)


def test_a_symmetric_grid_by_hand():
    scale, zero = scale_zero_point(-1.0, 2.54)
    assert scale == pytest.approx(0.02)  # 2.54 / 127
    assert zero == 0
    assert quantize([0.0, 0.01, 0.011, 2.54, -1.0], scale).tolist() == [0, 0, 1, 127, -50]


def test_an_asymmetric_grid_by_hand():
    scale, zero = scale_zero_point(-0.5, 2.05, symmetric=False)
    assert scale == pytest.approx(0.01)  # 2.55 / 255
    assert zero == 50
    assert quantize([-0.5, 0.0, 2.05], scale, zero, symmetric=False).tolist() == [0, 50, 255]
    assert dequantize(np.uint8([0, 50, 255]), scale, zero) == pytest.approx([-0.5, 0.0, 2.05])


def test_ties_round_to_even_and_values_outside_saturate():
    assert quantize([0.5, 1.5, 2.5, -0.5, 1e9, -1e9], 1.0).tolist() == [0, 2, 2, 0, 127, -128]


@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize(("low", "high"), [(0.3, 7.0), (-7.0, -0.3), (-1.0, 3.0), (0.0, 0.0)])
def test_zero_always_lies_on_the_grid(low, high, symmetric):
    scale, zero = scale_zero_point(low, high, symmetric=symmetric)
    smallest, largest = integer_range(symmetric=symmetric)
    assert smallest <= zero <= largest
    assert dequantize(quantize(0.0, scale, zero, symmetric=symmetric), scale, zero) == 0


def test_no_value_inside_the_range_moves_by_more_than_half_a_step():
    x = RANDOM.normal(size=10_000).astype(np.float32)
    for symmetric in (True, False):
        scale, _ = scale_zero_point(*value_range(x), symmetric=symmetric)
        assert np.abs(x - round_trip(x, symmetric=symmetric)).max() <= scale * 0.5001


def test_quantize_and_dequantize_equal_torch_per_tensor_and_per_channel():
    x = torch.randn(6, 5, 3, generator=torch.Generator().manual_seed(0))
    scale, zero = scale_zero_point(*value_range(x.numpy()), symmetric=False)
    theirs = torch.fake_quantize_per_tensor_affine(x, float(scale), int(zero), 0, 255)
    np.testing.assert_allclose(round_trip(x.numpy(), symmetric=False), theirs.numpy(), atol=1e-6)
    scale, zero = scale_zero_point(*value_range(x.numpy(), axis=1))
    theirs = torch.fake_quantize_per_channel_affine(
        x, torch.tensor(scale), torch.tensor(zero), 1, -128, 127
    )
    np.testing.assert_allclose(round_trip(x.numpy(), axis=1), theirs.numpy(), atol=1e-6)


@pytest.mark.parametrize("symmetric", [True, False])
def test_quantize_and_dequantize_equal_the_nodes_of_onnx(symmetric):
    x = (3 * RANDOM.normal(size=(4, 7))).astype(np.float32)
    scale, zero = scale_zero_point(*value_range(x, axis=0), symmetric=symmetric)
    clipped = scale / 2  # so that some values saturate
    ours = quantize(x, clipped, zero, symmetric=symmetric, axis=0)
    zero = zero.astype(ours.dtype)
    nodes = [
        onnx.helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"], axis=0),
        onnx.helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"], axis=0),
    ]
    inputs = [
        onnx.helper.make_tensor_value_info(n, onnx.TensorProto.UNDEFINED, None) for n in "xsz"
    ]
    outputs = [
        onnx.helper.make_tensor_value_info(n, onnx.TensorProto.UNDEFINED, None) for n in "qy"
    ]
    graph = onnx.helper.make_graph(nodes, "g", inputs, outputs)
    theirs, back = ReferenceEvaluator(onnx.helper.make_model(graph)).run(
        None, {"x": x, "s": clipped, "z": zero}
    )
    np.testing.assert_array_equal(ours, theirs)
    np.testing.assert_allclose(dequantize(ours, clipped, zero, axis=0), back)


def test_one_grid_a_channel_beats_one_for_all_when_channels_differ_in_size():
    weights = RANDOM.normal(size=(8, 64)) * np.geomspace(0.01, 1, 8)[:, None]
    gain = sqnr_db(weights[0], round_trip(weights, axis=0)[0]) - sqnr_db(
        weights[0], round_trip(weights)[0]
    )
    # a hundredth of the largest channel: 40 dB, less what the largest values differ by
    assert gain > 30


def test_the_noise_of_a_uniform_signal_is_a_twelfth_of_the_step_squared_and_a_bit_is_worth_6_db():
    x = RANDOM.uniform(-1, 1, 200_000)
    for bits in (4, 6, 8):
        step = 1 / (2 ** (bits - 1) - 1)
        expected = 10 * np.log10((1 / 3) / (step**2 / 12))
        assert sqnr_db(x, round_trip(x, bits=bits)) == pytest.approx(expected, abs=0.1)
    assert 10 * np.log10(4) == pytest.approx(6.02, abs=0.01)


def test_clipping_helps_a_signal_with_one_outlier():
    x = np.append(RANDOM.normal(size=10_000), 100.0)
    inside = slice(0, -1)
    assert (
        sqnr_db(x[inside], round_trip(x, clip=4.0)[inside])
        > sqnr_db(x[inside], round_trip(x)[inside]) + 10
    )


def test_sqnr_by_hand():
    assert sqnr_db([10.0, 0.0], [9.0, 0.0]) == pytest.approx(20)
    assert sqnr_db([1.0], [1.0]) == np.inf


def test_a_grid_of_one_bit_is_refused():
    with pytest.raises(LabError, match="2 to 16"):
        integer_range(1)
