"""A file in float16 is run with each rounding that it says, though the CPU computes in float32."""

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from typer.testing import CliRunner

from labkit import cli
from labkit.errors import LabError
from labkit.export import as_written, to_onnx
from labkit.quantize import all_outputs, to_fp16

FLOAT, HALF = TensorProto.FLOAT, TensorProto.FLOAT16
NUMBERS = np.linspace(-9, 9, 37, dtype=np.float32).reshape(1, 37)


def cast(name, to_name, kind):
    return helper.make_node("Cast", [name], [to_name], to=kind)


def model(nodes, *weights):
    value = helper.make_tensor_value_info
    ends = [value("input", FLOAT, ["N", 37])], [value("logits", FLOAT, ["N", 37])]
    graph = helper.make_graph(nodes, "half", *ends, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def there_and_back():
    """x + 2048 - 2048 in float16."""
    return [
        helper.make_node("Add", ["half", "far"], ["moved"]),
        helper.make_node("Sub", ["moved", "far"], ["back"]),
    ]


def in_a_chain():
    return [*there_and_back(), cast("back", "logits", FLOAT)]


def in_a_branch():
    """The same in both branches of an If, which read the numbers from outside."""
    value = helper.make_tensor_value_info("back", HALF, ["N", 37])
    branches = {
        name: helper.make_graph(there_and_back(), name, [], [value])
        for name in ("then_branch", "else_branch")
    }
    return [
        helper.make_node("If", ["yes"], ["chosen"], **branches),
        cast("chosen", "logits", FLOAT),
    ]


@pytest.mark.parametrize("nodes", [in_a_chain, in_a_branch])
@pytest.mark.parametrize("beside", [False, True], ids=["weights inside", "weights beside"])
def test_each_result_in_float16_is_rounded_as_numpy_rounds_it(nodes, beside, tmp_path):
    far = numpy_helper.from_array(np.full((1, 37), 2048, np.float16), "far")
    yes = numpy_helper.from_array(np.array(True), "yes")
    network = model([cast("input", "half", HALF), *nodes()], far, yes)
    path = tmp_path / "half.onnx"
    onnx.save(network, path, save_as_external_data=beside, size_threshold=16, location="half.data")
    # numbers above 2048 are 2 apart, those below it 1
    right = ((NUMBERS.astype(np.float16) + np.float16(2048)) - np.float16(2048)).astype(np.float32)
    np.testing.assert_array_equal(as_written(path)(torch.from_numpy(NUMBERS)).numpy(), right)
    np.testing.assert_array_equal(all_outputs(path, NUMBERS)["logits"], right)
    assert np.abs(right - NUMBERS).max() >= 0.5


class Weather(torch.nn.Module):
    """Answers 300 and a little that depends on the picture, as a temperature in kelvin."""

    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(144, 1)
        )

    def forward(self, x):
        return 300 + 0.02 * self.layers(x)


def test_a_regression_whose_answers_float16_rounds_to_one_number_is_refused_in_float16(tmp_path):
    torch.manual_seed(0)
    source = to_onnx(Weather().eval(), torch.randn(2, 3, 8, 8), tmp_path / "weather.onnx")
    with pytest.raises(LabError, match="on made-up inputs the output logits answers something"):
        to_fp16(source, tmp_path / "half.onnx")
    assert not (tmp_path / "half.onnx").exists()


def test_the_comparison_of_a_float16_file_counts_its_roundings(tmp_path):
    """A step of float16 near 300 is 1/4: the error is uniform within it, of the power 1/192."""
    network = torch.nn.Sequential(Weather(), torch.nn.Flatten()).eval()
    with torch.no_grad():
        network[0].layers[3].weight.mul_(400)
    torch.manual_seed(0)
    source = to_onnx(network, torch.randn(2, 3, 8, 8), tmp_path / "weather.onnx")
    words = ["quantize", source, tmp_path / "half.onnx", "--precision", "fp16"]
    done = CliRunner().invoke(cli.app, list(map(str, words)))
    assert done.exit_code == 0, done.output
    images = torch.rand(500, 3, 8, 8)
    exact = all_outputs(source, images)["logits"].astype(float)
    rounded = all_outputs(tmp_path / "half.onnx", images)["logits"].astype(float)
    assert ((rounded - exact) ** 2).mean() >= 1 / 192 / 2
    assert set(np.unique(rounded * 4 % 1)) == {0}
