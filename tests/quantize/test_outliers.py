"""Outliers in float: the split product by hand, what it wins, and what stays in float."""

import numpy as np
import onnx
import pytest
import torch

from labkit.export import to_onnx
from labkit.quantize import (
    Calibration,
    dynamic,
    in_int8,
    logits,
    observe,
    outliers_apart,
    prepared_for_quantizer,
)
from labkit.quantize.integer_grid import sqnr_db

PLACE, WIDTH = 5, 16  # the channel that reaches furthest, and how many there are


@pytest.fixture(scope="module")
def data():
    """(128, 16), one channel fifty times as large as the others."""
    values = np.random.default_rng(0).normal(size=(128, WIDTH)).astype(np.float32)
    values[:, PLACE] *= 50
    return Calibration((values[:64], values[64:]), "normal numbers with one large channel")


class Two(torch.nn.Module):
    """Two layers that read the same, one with a bias and one without."""

    def __init__(self):
        super().__init__()
        self.left, self.right = torch.nn.Linear(WIDTH, 4), torch.nn.Linear(WIDTH, 4, bias=False)

    def forward(self, x):
        return torch.tanh(self.left(x)) + torch.relu(self.right(x))


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    torch.manual_seed(0)
    network = Two()
    for layer in (network.left, network.right):
        layer.weight.data[:, PLACE] /= 50
    return prepared_for_quantizer(
        to_onnx(network, torch.zeros(2, WIDTH), tmp_path_factory.mktemp("two") / "two.onnx")
    )


def rows_of(model):
    return {
        t.name: onnx.numpy_helper.to_array(t)
        for t in model.graph.initializer
        if t.name.endswith("_rows")
    }


def test_the_split_product_is_the_whole_one(two, data):
    split = outliers_apart(two, data)
    np.testing.assert_allclose(logits(split, data), logits(two, data), rtol=1e-5, atol=1e-5)


def test_the_float_product_has_the_rows_of_the_outlier_and_one_selection_serves_both_layers(
    two, data
):
    split = outliers_apart(two, data)
    (gather,) = [node for node in split.graph.node if node.op_type == "Gather"]
    stored = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in split.graph.initializer}
    assert stored[gather.input[1]].tolist() == [PLACE]
    before = [onnx.numpy_helper.to_array(t) for t in two.graph.initializer if WIDTH in t.dims]
    wanted = [(w if len(w) == WIDTH else w.T)[[PLACE]] for w in before]
    found = list(rows_of(split).values())
    assert len(found) == len(wanted) == 2
    for rows in wanted:
        assert any(np.array_equal(rows, each) for each in found)


@pytest.mark.parametrize("recipe", ["tensorrt", "onnxruntime", "openvino"])
def test_with_outliers_apart_int8_is_much_closer_and_their_products_stay_in_float(
    recipe, two, data
):
    exact, split = logits(two, data), outliers_apart(two, data)
    whole, apart = (in_int8(model, observe(model, data), recipe=recipe) for model in (two, split))
    assert sqnr_db(exact, logits(apart, data)) > sqnr_db(exact, logits(whole, data)) + 10
    made = {name: node for node in apart.graph.node for name in node.output}
    products = [
        node
        for node in apart.graph.node
        if node.op_type == "MatMul" and node.input[1] in rows_of(apart)
    ]
    assert len(products) == 2
    assert all(made[node.input[0]].op_type == "Gather" for node in products)


def test_dynamic_quantization_leaves_the_products_of_outliers_in_float(two, data, tmp_path):
    onnx.save(outliers_apart(two, data), tmp_path / "split.onnx")
    onnx.save(two, tmp_path / "two.onnx")
    apart, whole = (
        dynamic(tmp_path / f"{name}.onnx", tmp_path / f"{name}-int8.onnx")
        for name in ("split", "two")
    )
    kinds = [node.op_type for node in onnx.load(apart).graph.node]
    assert kinds.count("MatMulInteger") == 2
    assert kinds.count("Gemm") + kinds.count("MatMul") == 2
    exact = logits(two, data)
    assert sqnr_db(exact, logits(apart, data)) > sqnr_db(exact, logits(whole, data)) + 10


def test_channels_that_are_alike_and_convolutions_are_left_as_they_are(two, onnx_file, train):
    values = np.random.default_rng(0).uniform(-1, 1, (128, WIDTH)).astype(np.float32)
    alike = outliers_apart(two, Calibration((values,), "uniform numbers"))
    assert [node.name for node in alike.graph.node] == [node.name for node in two.graph.node]
    model = prepared_for_quantizer(onnx_file)
    found = outliers_apart(model, Calibration.of(train, count=64))
    assert [node.name for node in found.graph.node] == [node.name for node in model.graph.node]
