"""Weights in few bits by groups: the numbers of the equation, what the engine computes, what
cannot be done.
"""

import numpy as np
import onnx
import pytest
import torch

from labkit import engines, export
from labkit.errors import LabError
from labkit.export.runtime import notes
from labkit.quantize import weight_only
from labkit.quantize.integer_grid import sqnr_db

BLOCK = 32


@pytest.fixture(scope="module")
def matrix():
    """A product with (64, 48) weights of very different sizes, so that groups matter."""
    values = torch.randn(64, 48, generator=torch.Generator().manual_seed(0))
    return values * torch.logspace(-2, 1, 64)[:, None]


@pytest.fixture(scope="module")
def plain(matrix, tmp_path_factory):
    class Product(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(matrix)

        def forward(self, x):
            return x @ self.weight

    return export.to_onnx(
        Product(), torch.randn(2, 64), tmp_path_factory.mktemp("weights") / "net.onnx"
    )


def rounded(matrix, bits):
    """By hand: per output and group of inputs, the largest magnitude lies at the end of a grid
    of 2 ** bits steps.
    """
    groups = matrix.numpy().T.reshape(48, -1, BLOCK)
    ends = groups.min(-1, keepdims=True), groups.max(-1, keepdims=True)
    end = np.where(np.abs(ends[0]) > np.abs(ends[1]), *ends)
    scale = end / -(2 ** (bits - 1))
    steps = np.clip(np.round(groups / scale), -(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    return (steps * scale).reshape(48, 64).T


@pytest.mark.parametrize("bits", [8, 4])
def test_the_engine_multiplies_by_the_weights_rounded_by_hand(plain, matrix, bits, tmp_path):
    path = weight_only(plain, tmp_path / "small.onnx", bits=bits, block=BLOCK)
    x = torch.randn(5, 64, generator=torch.Generator().manual_seed(1))
    found = engines.load("onnxruntime", path, x)(x).numpy()
    assert sqnr_db(x.numpy() @ rounded(matrix, bits), found) > 60


def test_with_inputs_in_eight_bits_each_block_of_the_input_has_its_own_step(
    plain, matrix, tmp_path
):
    path = weight_only(plain, tmp_path / "small.onnx", block=BLOCK, inputs="int8")
    x = torch.randn(5, 64, generator=torch.Generator().manual_seed(1))
    x[2, 3] = 100.0  # an outlier coarsens its own block only
    (node,) = (each for each in onnx.load(path).graph.node if each.op_type == "MatMulNBits")
    assert {each.name: each.i for each in node.attribute}["accuracy_level"] == 4
    blocks = x.numpy().reshape(5, -1, BLOCK)
    steps = np.abs(blocks).max(2, keepdims=True) / 127
    by_hand = (np.round(blocks / steps) * steps).reshape(5, 64) @ rounded(matrix, 8)
    found, wanted = engines.load("onnxruntime", path, x)(x).numpy(), x.numpy() @ rounded(matrix, 8)
    # the second: a CPU without such a kernel
    assert sqnr_db(by_hand, found) > 60 or sqnr_db(wanted, found) > 60


def test_eight_bits_are_about_24_db_better_than_four_and_the_file_says_what_it_holds(
    plain, matrix, tmp_path
):
    x, db = torch.randn(50, 64, generator=torch.Generator().manual_seed(2)), {}
    for bits in (8, 4):
        path = weight_only(plain, tmp_path / f"{bits}.onnx", bits=bits)
        db[bits] = sqnr_db((x @ matrix).numpy(), export.as_written(path)(x).numpy())
        assert f"weights in {bits} bits" in notes(onnx.load(path))["quantized"]
    assert 20 < db[8] - db[4] < 28  # 6 dB per bit
    assert export.precision_of(export.checked(path)) == "fp32"  # what it computes in


def test_the_file_gets_smaller(tmp_path):
    path = export.to_onnx(
        torch.nn.Linear(512, 512, bias=False), torch.randn(2, 512), tmp_path / "net.onnx"
    )
    sizes = [
        weight_only(path, tmp_path / f"{bits}.onnx", bits=bits).stat().st_size for bits in (8, 4)
    ]
    whole = path.stat().st_size
    assert sizes[0] < 0.32 * whole
    assert sizes[1] < 0.19 * whole


def test_other_bits_and_a_file_without_products_are_refused(plain, tmp_path):
    with pytest.raises(LabError, match="no kernels"):
        weight_only(plain, tmp_path / "small.onnx", bits=3)
    with pytest.raises(LabError, match="no kind of inputs"):
        weight_only(plain, tmp_path / "small.onnx", inputs="int4")
    relu = export.to_onnx(torch.nn.ReLU(), torch.randn(2, 3), tmp_path / "relu.onnx")
    with pytest.raises(LabError, match="nothing to quantize"):
        weight_only(relu, tmp_path / "small.onnx")
