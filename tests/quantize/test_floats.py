"""Half precision in the file, with float32 at its ends."""

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from onnx.reference import ReferenceEvaluator

from labkit.errors import LabError
from labkit.export import parity, to_onnx
from labkit.quantize import Calibration, static, to_fp16

FP16 = onnx.TensorProto.FLOAT16


def weights(path):
    return [
        tensor.data_type for tensor in onnx.load(path).graph.initializer if len(tensor.dims) > 1
    ]


def unoptimised(path, batch):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(path, options).run(None, {"input": batch.numpy()})[0]


@pytest.mark.slow
def test_weights_become_half_and_inputs_and_outputs_stay_float(
    onnx_file, network, images, tmp_path
):
    path = to_fp16(onnx_file, tmp_path / "half.onnx")
    graph = onnx.load(path).graph
    assert set(weights(path)) == {FP16}
    ends = [*graph.input, *graph.output]
    assert {end.type.tensor_type.elem_type for end in ends} == {onnx.TensorProto.FLOAT}
    assert path.stat().st_size < 0.6 * onnx_file.stat().st_size
    assert parity(network, path, [images[:3], images]).cosine > 0.99999


def test_an_int8_file_becomes_int8_and_half(onnx_file, train, network, images, tmp_path):
    int8 = static(onnx_file, tmp_path / "int8.onnx", train)
    both = to_fp16(int8, tmp_path / "both.onnx")
    kinds = {tensor.data_type for tensor in onnx.load(both).graph.initializer}
    assert {onnx.TensorProto.INT8, FP16} <= kinds
    assert both.stat().st_size < int8.stat().st_size
    with torch.inference_mode():
        wanted = network(images).numpy()
    found = unoptimised(both, images)
    assert (found * wanted).sum() / np.sqrt((found**2).sum() * (wanted**2).sum()) > 0.999


def test_what_exceeds_half_precision_on_real_data_stays_float(train, images, tmp_path):
    class Large(torch.nn.Module):
        def forward(self, x):
            return (x.flatten(1) * 50_000).sum(1, keepdim=True) / 50_000

    net = Large()
    net.weight = torch.nn.Parameter(torch.zeros(1))
    source = to_onnx(net, images[:2], tmp_path / "large.onnx")
    with pytest.raises(LabError, match=r"-inf dB(?s:.*)next: --data: what overflows"):
        to_fp16(source, tmp_path / "a.onnx")
    path = to_fp16(source, tmp_path / "b.onnx", Calibration.of(train))
    found = ReferenceEvaluator(onnx.load(path)).run(None, {"input": images.numpy()})[0]
    np.testing.assert_allclose(found, net(images).numpy(), rtol=1e-2, atol=0.2)


@pytest.mark.slow
def test_weights_that_several_nodes_read_are_stored_once(tmp_path):
    class Recurrent(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.gru = torch.nn.GRU(64, 128, bidirectional=True, batch_first=True)

        def forward(self, x):
            return self.gru(x)[0][:, -1]

    network, batch = Recurrent().eval(), torch.randn(3, 5, 64)
    source = to_onnx(network, batch, tmp_path / "gru.onnx")
    path = to_fp16(source, tmp_path / "half.onnx")
    assert path.stat().st_size < 0.6 * source.stat().st_size
    assert parity(network, path, [batch]).cosine > 0.9999


@pytest.mark.slow
def test_a_mask_that_is_cast_to_numbers_meets_half_precision(tmp_path):
    class Masked(torch.nn.Module):
        def forward(self, x):
            return x * (x > 0).float() * 2

    batch = torch.randn(3, 5)
    source = to_onnx(Masked(), batch, tmp_path / "masked.onnx")
    path = to_fp16(source, tmp_path / "half.onnx")
    np.testing.assert_allclose(unoptimised(path, batch), Masked()(batch).numpy(), rtol=2e-3)


class LargeConstants(torch.nn.Module):
    """Multiplies by 100,000, in a stored weight and in a constant, and divides again."""

    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(6, 4)
        self.register_buffer("scale", torch.tensor([1e5, 2e5, 3e5, 4e5]))

    def forward(self, x):
        return self.linear(x) * self.scale / 1e6 + x.mean(1, keepdim=True) * 7e4 / 1e5


class ReadsInSteps(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.steps, self.last = (
            torch.nn.LSTM(6, 8, batch_first=True, bidirectional=True),
            torch.nn.Linear(16, 4),
        )

    def forward(self, x):
        return self.last(self.steps(x)[0][:, -1])


class Scatters(torch.nn.Module):
    """Writes products into places that other inputs name, by ScatterElements and by ScatterND."""

    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(6, 6)

    def forward(self, x):
        products = self.linear(x)
        scattered = torch.zeros_like(x).scatter_add(1, (x > 0).long(), products)
        scattered[:, 2:4] = products[:, :2]
        return self.linear(scattered)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("network", "shape"),
    [(LargeConstants, (6,)), (ReadsInSteps, (5, 6)), (Scatters, (6,))],
    ids=["constants", "lstm", "scatter"],
)
def test_what_float16_cannot_hold_or_compute_stays_in_float32_and_the_answers_are_the_same(
    network, shape, tmp_path
):
    torch.manual_seed(0)
    network = network().eval()
    batch = torch.randn(16, *shape)
    source = to_onnx(network, batch[:2], tmp_path / "net.onnx")
    path = to_fp16(source, tmp_path / "half.onnx")
    assert FP16 in {tensor.data_type for tensor in onnx.load(path).graph.initializer}
    assert parity(network, path, [batch]).varying_db > 50


def test_constants_above_the_largest_float16_are_kept_to_the_digit(tmp_path):
    source = to_onnx(LargeConstants().eval(), torch.randn(2, 6), tmp_path / "net.onnx")
    graph = onnx.load(to_fp16(source, tmp_path / "half.onnx")).graph
    stored = [onnx.numpy_helper.to_array(tensor) for tensor in graph.initializer]
    large = [values for values in stored if np.abs(values).max() > 65_504]
    assert {str(values.dtype) for values in large} == {"float32"}
    assert any(np.array_equal(values.ravel(), [1e5, 2e5, 3e5, 4e5]) for values in large)
