"""SmoothQuant on ONNX graphs: the factors by hand, the same answers in float, and closer ones in
INT8.
"""

import numpy as np
import onnx
import pytest
import torch
from torch import nn

from labkit.export import to_onnx
from labkit.quantize import Calibration, in_int8, logits, observe, prepared_for_quantizer, smoothed
from labkit.quantize.integer_grid import sqnr_db

RANDOM = np.random.default_rng(0)
OUTLIER = 60


class Block(nn.Module):
    """A layer norm with an outlier channel, two layers that read it beside a residual sum, and
    an MLP with a GELU.
    """

    def __init__(self):
        super().__init__()
        self.norm, self.one, self.two = nn.LayerNorm(16), nn.Linear(16, 16), nn.Linear(16, 16)
        self.up, self.down = nn.Linear(16, 32), nn.Linear(32, 4)
        self.norm.weight.data[3] = OUTLIER

    def forward(self, x):
        x = self.norm(x)
        x = x + self.one(x) * self.two(x)
        return self.down(nn.functional.gelu(self.up(x))).mean(1)


def convolutions():
    """Between the first two a ReLU and an outlier; the second is depthwise; the third has no
    bias; a linear head.
    """
    net = nn.Sequential(
        nn.Conv2d(2, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3, groups=8), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 12, 3, groups=2, bias=False), nn.Hardswish(), nn.Flatten(), nn.Linear(48, 5))  # fmt: skip
    net[0].weight.data[5] *= OUTLIER
    return net


def made(name, folder):
    """(model, data, held-out inputs, float answers of torch)"""
    torch.manual_seed(0)
    net, shape = {"block": (Block(), (6, 16)), "convolutions": (convolutions(), (2, 12, 12))}[name]
    items = RANDOM.normal(size=(192, *shape)).astype(np.float32)
    if name == "convolutions":
        items = np.cumsum(items, -1) / 3  # neighbouring pixels are alike
    path = to_onnx(net.eval(), torch.from_numpy(items[:2]), folder / "net.onnx")
    with torch.inference_mode():
        wanted = net(torch.from_numpy(items[128:])).numpy()
    return (
        prepared_for_quantizer(path),
        Calibration((items[:64], items[64:128]), "made up"),
        items[128:],
        wanted,
    )


@pytest.fixture(scope="module", params=["block", "convolutions"])
def case(request, tmp_path_factory):
    return made(request.param, tmp_path_factory.mktemp(request.param))


@pytest.mark.parametrize("alpha", [0.3, 0.8])
def test_in_float_the_smoothed_network_answers_the_same(case, alpha):
    model, data, items, wanted = case
    before = model.SerializeToString()
    found = smoothed(model, data, alpha=alpha)
    assert sqnr_db(wanted, logits(found, items)) > 100
    assert model.SerializeToString() == before  # it was a copy that changed
    onnx.checker.check_model(found, full_check=True)


# the second: weights of 7 bits
@pytest.mark.parametrize(("recipe", "gain"), [("tensorrt", 3), ("onnxruntime", 1.5)])
def test_in_int8_the_smoothed_network_is_closer(case, recipe, gain):
    model, data, items, wanted = case
    flat = smoothed(model, data)
    before, after = (
        sqnr_db(wanted, logits(in_int8(each, observe(each, data), recipe=recipe), items))
        for each in (model, flat)
    )
    assert after > before + gain


def one_layer(weights):
    """x (N, 2) times stored weights, as a model."""
    make = onnx.helper.make_tensor_value_info
    ports = [make(name, onnx.TensorProto.FLOAT, ["N", None]) for name in "xy"]
    node = onnx.helper.make_node("MatMul", ["x", "w"], ["y"], "layer")
    stored = [onnx.numpy_helper.from_array(np.float32(weights), "w")]
    graph = onnx.helper.make_graph([node], "one", ports[:1], ports[1:], stored)
    return onnx.helper.make_model(
        graph, opset_imports=[onnx.helper.make_opsetid("", 20)], ir_version=10
    )


def test_the_factors_are_those_of_the_paper_up_to_a_common_one():
    x = np.zeros((64, 2), np.float32)
    x[0], x[1] = (8, -1), (-16, 0.5)  # largest values 16 and 1
    model = one_layer([[1, -4, 2], [0.5, 0.25, 1]])  # largest weights 4 and 1
    found = smoothed(model, Calibration((x,), "by hand"), alpha=0.75)
    stored = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in found.graph.initializer}
    ratio = (16**0.75 / 4**0.25) / (1 / 1)
    assert 1 / stored["x_factor"] == pytest.approx(np.array([ratio, 1]) / np.sqrt(ratio))
    scaled = np.array([[1, -4, 2], [0.5, 0.25, 1]]) / stored["x_factor"][:, None]
    assert stored["w_of_layer"] == pytest.approx(scaled)


def test_a_channel_that_no_weight_reads_does_not_set_the_grid():
    x = np.zeros((64, 3), np.float32)
    x[0] = (1, 2, 5000)
    data = Calibration((x,), "by hand")
    found = smoothed(one_layer([[1, 1], [2, 2], [0, 0]]), data)
    assert observe(found, data)["x_smooth"].upper_edge <= 2


def test_channels_that_are_always_0_are_left_alone():
    x = np.zeros((64, 2), np.float32)
    x[:, 0] = np.arange(64)
    found = smoothed(one_layer([[1, 1], [2, 2]]), Calibration((x,), "by hand"))
    stored = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in found.graph.initializer}
    assert stored["x_factor"] == pytest.approx(np.ones(2))


def test_what_enters_a_depthwise_convolution_becomes_alike_in_all_channels(tmp_path):
    model, data, *_ = made("convolutions", tmp_path)
    flat = smoothed(model, data)
    entering = [node for node in model.graph.node if node.op_type == "Conv"][1].input[0]

    def reach(each):
        from labkit.quantize.activation_ranges import activations

        return np.max(
            [np.abs(values).max((0, 2, 3)) for _, values in activations(each, data, [entering])], 0
        )

    assert reach(model).max() > 10 * np.median(reach(model))
    assert reach(flat) == pytest.approx(reach(flat)[0], rel=1e-3)
