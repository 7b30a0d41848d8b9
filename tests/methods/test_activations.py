"""The activations by name: their formulas by hand, their errors against GELU, their costs, and their way to ONNX."""

import math

import pytest
import torch

from labkit.errors import LabError
from labkit.export import parity, to_onnx
from labkit.methods import activations
from labkit.models import build, example

each_activation = pytest.mark.parametrize("name", activations.names())


def sigmoid(u):
    return 1 / (1 + math.exp(-u))


def piecewise(x):
    u = x / math.sqrt(2)
    erf = math.copysign(1, u) * (1 - 0.2888 * (min(abs(u), 1.769) - 1.769) ** 2)
    return x * (1 + erf) / 2


def fastswish(x):
    v, k = 0.1, 4.5
    return x if x >= 3 else x * (x * (3 - v) / 18 + (3 + v) / 6) if x >= -3 else -v / (1 - k * (x + 3))


BY_HAND = {
    "gelu": lambda x: x * (1 + math.erf(x / math.sqrt(2))) / 2,
    "gelu-tanh": lambda x: x / 2 * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "gelu-sigmoid": lambda x: x * sigmoid(1.702 * x),
    "gelu-piecewise": piecewise,
    "silu": lambda x: x * sigmoid(x),
    "hardswish": lambda x: x * min(max(x + 3, 0), 6) / 6,
    "relu": lambda x: max(x, 0),
    "fastswish": fastswish,
}


@each_activation
def test_an_activation_computes_its_formula(name):
    x = torch.linspace(-12, 12, 481, dtype=torch.float64)
    wanted = torch.tensor([BY_HAND[name](float(number)) for number in x], dtype=torch.float64)
    torch.testing.assert_close(activations.build(name)(x), wanted, atol=1e-12, rtol=1e-9)


@each_activation
def test_the_error_against_gelu_is_the_largest_distance_of_the_formulas(name):
    grid = [i / 100 for i in range(-1000, 1001)]
    wanted = max(abs(BY_HAND[name](x) - BY_HAND["gelu"](x)) for x in grid)
    assert activations.get(name).error == pytest.approx(wanted, abs=2e-4)


@each_activation
def test_gradcheck_in_double_precision(name):
    x = torch.tensor([-5.2, -2.3, -0.7, 0.4, 1.3, 4.1], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(activations.build(name), x)


def test_one_operator_is_one_and_a_formula_in_python_is_many():
    counted = {name: activations.get(name).operators for name in activations.names()}
    assert counted["relu"] == counted["gelu"] == counted["silu"] == counted["hardswish"] == 1
    assert counted["gelu-sigmoid"] == 3  # a product, a sigmoid, a product
    assert counted["gelu-piecewise"] > 8


def test_what_is_kept_for_the_backward_pass_is_counted_in_bytes_an_element():
    kept = {name: activations.get(name).bytes for name in activations.names()}
    assert kept["relu"] == kept["gelu"] == kept["fastswish"] == 4
    assert kept["gelu-sigmoid"] == 8  # x and the sigmoid


class AllAtOnce(torch.nn.Module):
    """(N, C, H, W) -> (N, activations, C H W), from one linear layer."""

    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(16, 16)
        self.each = torch.nn.ModuleList(activations.build(name) for name in activations.names())

    def forward(self, x):
        return torch.stack([activation(self.linear(4 * x.flatten(1))) for activation in self.each], 1)


@pytest.mark.slow
def test_every_activation_is_exported_with_parity(tmp_path):
    torch.manual_seed(0)
    model = AllAtOnce()
    path = to_onnx(model, torch.randn(2, 1, 4, 4), tmp_path / "activations.onnx")
    assert parity(model, path, [torch.randn(n, 1, 4, 4) for n in (1, 3)]).max_error < 1e-6


def test_a_network_takes_the_factory_of_an_activation():
    net, _ = build("convnext-mini", activation=activations.get("fastswish").make)
    assert net(example("convnext-mini", 2)).shape == (2, 10)


def test_the_table_has_a_line_an_activation():
    assert list(activations.table()["activation"]) == list(activations.names())


def test_an_unknown_name_is_refused_with_the_known_ones():
    with pytest.raises(LabError, match="expected: gelu or gelu-tanh"):
        activations.get("swish")
