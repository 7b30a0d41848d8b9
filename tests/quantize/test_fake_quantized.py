"""A network with fake quantizers becomes a Q/DQ file: the integers of its own grids, and its
answers.
"""

import numpy as np
import onnx
import pytest
import torch
from onnx import numpy_helper
from torch import nn

from labkit import export, quantize
from labkit.errors import LabError


class FakeQuantizer(nn.Module):
    """Rounds to scale * {low, ..., high}: weights (a scale per row) to int8, activations to
    uint8.
    """

    def __init__(self, scale, low, high):
        super().__init__()
        self.register_buffer("scale", torch.as_tensor(scale))
        self.low, self.high = low, high

    def forward(self, x):
        integers = (x / self.scale).round().clamp(self.low, self.high)
        if not torch.compiler.is_exporting():
            return integers * self.scale
        if self.scale.ndim:  # weights
            scale = self.scale.flatten()
            integers, zero = integers.to(torch.int8), torch.zeros(len(scale), dtype=torch.int8)
            attributes = {"axis": 0}
        else:
            scale, zero, attributes = self.scale, torch.tensor(-self.low, dtype=torch.uint8), {}
            integers = torch.onnx.ops.symbolic(
                "QuantizeLinear", (x, scale, zero), dtype=torch.uint8, shape=x.shape
            )
        return torch.onnx.ops.symbolic(
            "DequantizeLinear",
            (integers, scale, zero),
            attributes,
            dtype=torch.float32,
            shape=x.shape,
        )


class Layer(nn.Module):
    """A layer between fake quantizers."""

    def __init__(self, layer, weights, activations):
        super().__init__()
        self.layer, self.weights, self.activations = layer, weights, activations

    def forward(self, x):
        weight = self.weights(self.layer.weight)
        return torch.func.functional_call(self.layer, {"weight": weight}, self.activations(x))


# no ties: no sum of products lies half way between two steps
SCALES = torch.tensor([0.0217, 0.0308, 0.0113, 0.0491])


def to_multiples(bias, steps):
    """Round a bias to multiples of the step of the products, as an engine stores it."""
    with torch.no_grad():
        bias.copy_((bias / steps).round() * steps)


def small_network():
    """A convolution on 4 bits, its scales no rule would choose, and a linear layer on 8 bits."""
    torch.manual_seed(3)
    convolution = Layer(
        nn.Conv2d(2, 4, 3),
        FakeQuantizer(SCALES.view(-1, 1, 1, 1), -7, 7),
        FakeQuantizer(0.0193, -128, 127),
    )
    linear = Layer(
        nn.Linear(4 * 36, 5),
        FakeQuantizer(torch.full((5, 1), 0.001), -63, 63),
        FakeQuantizer(0.01, 0, 255),
    )
    to_multiples(convolution.layer.bias, 0.0193 * SCALES)
    to_multiples(linear.layer.bias, 0.01 * 0.001)
    return nn.Sequential(convolution, nn.ReLU(), nn.Flatten(), linear).eval()


@pytest.fixture(scope="module")
def network():
    return small_network()


@pytest.fixture(scope="module")
def file(network, tmp_path_factory):
    path = tmp_path_factory.mktemp("fake") / "trained.onnx"
    return quantize.from_fake_quantized(network, torch.randn(4, 2, 8, 8), path)


def stored(path):
    return {
        tensor.name: numpy_helper.to_array(tensor) for tensor in onnx.load(path).graph.initializer
    }


def test_the_file_stores_the_integers_of_the_networks_own_grids_and_no_weights_in_float(
    network, file
):
    model, arrays = onnx.load(file), stored(file)
    convolution = next(node for node in model.graph.node if node.op_type == "Conv")
    reader = next(node for node in model.graph.node if node.output[0] == convolution.input[1])
    assert reader.op_type == "DequantizeLinear"
    integers, scales = arrays[reader.input[0]], arrays[reader.input[1]]
    weights = network[0].layer.weight.detach().numpy()
    expected = np.clip(np.round(weights / SCALES.numpy().reshape(-1, 1, 1, 1)), -7, 7)
    assert integers.dtype == np.int8
    assert np.array_equal(integers, expected)
    assert np.abs(integers).max() == 7  # weights beyond the grid lie at its end
    assert np.array_equal(scales, SCALES.numpy())
    assert not [
        name for name, array in arrays.items() if array.dtype == np.float32 and array.ndim > 1
    ]


def test_the_file_says_that_it_is_int8_and_how_it_was_made(file):
    model = onnx.load(file)
    assert export.precision_of(model) == "int8"
    assert {entry.key: entry.value for entry in model.metadata_props}["quantized"].startswith(
        "int8, on the grids"
    )


@pytest.mark.parametrize("level", ["none", "all"])
@pytest.mark.parametrize("batch", [1, 7, 200])
def test_the_engine_answers_like_the_fake_quantized_network_for_every_batch(
    network, file, level, batch
):
    images = torch.randn(batch, 2, 8, 8, generator=torch.Generator().manual_seed(batch))
    with torch.no_grad():
        expected = network(images).numpy()
    session = export.session(file, level, threads=1)
    (outputs,) = session.run(None, {"input": images.numpy()})
    # a value on the border between two integers may fall to either side: a step of 0.01 times a
    # weight of 0.063
    assert np.abs(outputs - expected).max() <= 1.1 * 0.01 * 0.063
    assert np.abs(outputs - expected).mean() <= 0.02 * 0.01 * 0.063


def test_a_network_without_fake_quantizers_is_refused_and_no_file_is_left(tmp_path):
    with pytest.raises(LabError, match="Nothing in Sequential is quantized"):
        quantize.from_fake_quantized(
            nn.Sequential(nn.Linear(3, 2)), torch.randn(2, 3), tmp_path / "no.onnx"
        )
    assert list(tmp_path.iterdir()) == []
