"""INT8 with ranges found in each call: the engine computes what the file means, and close to the
float network.
"""

import numpy as np
import onnx
import pytest
import torch
from onnx.reference import ReferenceEvaluator

from labkit import engines, export
from labkit.errors import LabError
from labkit.export.runtime import notes
from labkit.models.encoder import Encoder
from labkit.quantize import dynamic
from labkit.quantize.integer_grid import sqnr_db


@pytest.fixture(scope="module")
def tokens():
    return torch.randint(1, 50, (6, 9), generator=torch.Generator().manual_seed(0))


@pytest.fixture(scope="module")
def plain(tokens, tmp_path_factory):
    torch.manual_seed(0)
    network = Encoder(32, 2, heads=4, vocabulary=50, longest=16).eval()
    return export.to_onnx(
        network, tokens, tmp_path_factory.mktemp("dynamic") / "net.onnx", dynamic_shapes={1: 16}
    )


@pytest.fixture(scope="module")
def quantized(plain):
    return dynamic(plain, plain.with_name("int8.onnx"))


@pytest.mark.slow
def test_a_file_with_an_open_length_takes_any(plain):
    served = engines.load("onnxruntime", plain, torch.ones(1, 2, dtype=torch.int64))
    for shape in ((1, 2), (3, 5), (2, 16)):
        assert served(torch.ones(shape, dtype=torch.int64)).shape == (shape[0], 2)


@pytest.mark.slow
def test_every_product_with_stored_weights_is_in_integers_and_the_file_says_so(plain, quantized):
    model = export.checked(quantized)
    assert export.operators(model)["MatMulInteger"] >= 12
    assert export.precision_of(model) == "int8"
    assert "ranges found in each call" in notes(model)["quantized"]
    assert quantized.stat().st_size < plain.stat().st_size


@pytest.mark.parametrize("level", ["none", "all"])
def test_the_engine_computes_what_the_file_means(quantized, tokens, level):
    (means,) = ReferenceEvaluator(onnx.load(quantized)).run(None, {"tokens": tokens.numpy()})
    (found,) = export.session(quantized, level).run(None, {"tokens": tokens.numpy()})
    assert sqnr_db(means, found) > 60


def test_it_stays_near_the_float_network(plain, quantized, tokens):
    exact, found = (engines.load("onnxruntime", path, tokens, precision=kind)(tokens).numpy()
                    for path, kind in ((plain, "fp32"), (quantized, "int8")))  # fmt: skip
    assert 15 < sqnr_db(exact, found) < 100  # near, and not the same


def test_weights_of_seven_bits_leave_room_for_two_products_in_sixteen(quantized):
    stored = [
        onnx.numpy_helper.to_array(tensor) for tensor in onnx.load(quantized).graph.initializer
    ]
    weights = [values for values in stored if values.dtype == np.int8 and values.ndim == 2]
    assert weights
    assert max(np.abs(values.astype(int)).max() for values in weights) <= 64


def test_what_is_kept_stays_float(plain):
    names = [
        node.name for node in export.checked(plain).graph.node if node.op_type in ("MatMul", "Gemm")
    ]
    with pytest.raises(LabError, match="no such nodes") as refused:
        dynamic(plain, plain.with_name("kept.onnx"), in_float=["nothing", *names])
    kept = refused.value.expected.split(", ")[0]
    path = dynamic(plain, plain.with_name("kept.onnx"), in_float=[kept])
    assert kept in {node.name for node in onnx.load(path).graph.node}


def test_a_file_without_products_is_refused(tmp_path):
    path = export.to_onnx(torch.nn.ReLU(), torch.randn(2, 3), tmp_path / "relu.onnx")
    with pytest.raises(LabError, match="nothing to quantize"):
        dynamic(path, tmp_path / "int8.onnx")


def test_a_layer_with_a_bias_on_vectors_is_quantized_too(tmp_path):
    torch.manual_seed(0)
    source = export.to_onnx(torch.nn.Linear(32, 8), torch.zeros(2, 32), tmp_path / "net.onnx")
    assert export.operators(export.checked(source)) == {"Gemm": 1}
    made = dynamic(source, tmp_path / "int8.onnx")
    assert export.operators(export.checked(made))["MatMulInteger"] == 1
