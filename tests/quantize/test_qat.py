"""Quantization-aware training: on the grid, differentiable, and the same after export."""

import numpy as np
import onnx
import pytest
import torch

from labkit.export import parity
from labkit.models import build
from labkit.quantize import qat
from labkit.quantize.numbers import round_trip, sqnr_db

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")]


@pytest.fixture(scope="module")
def small():
    torch.manual_seed(0)
    net, _ = build("cnn-small")
    with torch.no_grad():
        for _ in range(3):
            net(torch.randn(16, 1, 28, 28))  # running statistics other than 0 and 1
    return net.eval()


def test_a_layer_computes_what_quantizing_by_hand_gives(images):
    torch.manual_seed(0)
    net = torch.nn.Linear(784, 5, bias=False)
    x = images.flatten(1)
    prepared = qat.calibrate(qat.prepare(net, x[:2]), [x])
    weights = round_trip(net.weight.detach().numpy(), axis=0)
    by_hand = round_trip(x.numpy()) @ weights.T
    assert sqnr_db(by_hand, prepared(x).detach().numpy()) > 40  # the grids end at 127.5 here and at 127 there


def test_eight_bits_change_little_and_fewer_bits_more(small, images):
    exact = small(images).detach().numpy()
    found = {}
    for bits in (8, 4, 2):
        prepared = qat.calibrate(qat.prepare(small, images[:2], weight_bits=bits), [images])
        found[bits] = sqnr_db(exact, prepared(images).detach().numpy())
    assert found[8] > 25
    assert found[8] > found[4] + 3
    assert found[4] > found[2] + 3


def test_training_moves_the_weights_through_the_rounding_and_the_loss_falls(small, train):
    images, labels = next(iter(train.batches(100)))
    prepared = qat.prepare(small, images[:2], weight_bits=2).train()
    optimizer = torch.optim.Adam(prepared.parameters(), lr=0.01)
    losses = []
    for _ in range(15):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(prepared(images), labels)
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < losses[0] - 0.02
    assert all(weight.grad is not None and weight.grad.any() for weight in prepared.parameters())


def test_ranges_are_observed_in_training_mode_only(small, images):
    prepared = qat.calibrate(qat.prepare(small, images[:2]), [images])
    before = {name: buffer.clone() for name, buffer in prepared.named_buffers() if name.endswith("scale")}
    prepared.eval()(100 * images)
    assert before
    assert all(torch.equal(buffer, before[name]) for name, buffer in prepared.named_buffers() if name in before)


def test_the_exported_file_has_q_dq_nodes_computes_the_same_and_uses_only_the_integers_of_its_grid(
    small, images, tmp_path
):
    prepared = qat.calibrate(qat.prepare(small, images[:2], weight_bits=3), [images])
    path = qat.export(prepared, images[:2], tmp_path / "qat.onnx")
    graph = onnx.load(path).graph
    kinds = [node.op_type for node in graph.node]
    assert kinds.count("QuantizeLinear") == 7  # activations; the weights are integers already
    assert kinds.count("DequantizeLinear") == 14
    stored = [onnx.numpy_helper.to_array(tensor) for tensor in graph.initializer if tensor.data_type == 3]
    weights = [values for values in stored if values.ndim > 1]
    assert len(weights) == 7
    assert {values.dtype for values in weights} == {np.dtype(np.int8)}
    assert all(values.min() >= -4 and values.max() <= 3 for values in weights)
    assert parity(prepared, path, [images[:3], images]).cosine > 0.999


def test_the_network_itself_is_not_changed(small, images):
    before = {name: value.clone() for name, value in small.state_dict().items()}
    qat.prepare(small, images[:2])
    assert all(torch.equal(value, before[name]) for name, value in small.state_dict().items())
