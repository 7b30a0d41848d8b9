"""`labkit quantize` on networks whose answers a figure of the whole output would call right."""

import re

import pytest
import torch
from typer.testing import CliRunner

from labkit import cli
from labkit.errors import LabError
from labkit.export import to_onnx


def quantize(source, to, *more):
    words = [
        "quantize",
        source,
        to,
        "--data",
        "fashion-mnist",
        "--count",
        64,
        "--recipe",
        "onnxruntime",
        *more,
    ]
    return CliRunner().invoke(cli.app, list(map(str, words)))


def small_onnx(last, folder, *, seed=0):
    """A small network of a convolution and what `last` makes of its 8 averages, as an ONNX file."""
    torch.manual_seed(seed)
    body = (
        torch.nn.Conv2d(1, 8, 5, stride=3),
        torch.nn.ReLU(),
        torch.nn.AdaptiveAvgPool2d(1),
        torch.nn.Flatten(),
    )
    network = torch.nn.Sequential(*body, last).eval()
    return to_onnx(network, torch.randn(2, 1, 28, 28), folder / "net.onnx")


class NearlyConstant(torch.nn.Module):
    """A regression: 300 and about 0.08 that depends on the input."""

    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(8, 1)

    def forward(self, x):
        return self.linear(x) * 0.08 + 300


class BoxesAndScores(torch.nn.Module):
    """Four sides of 0 to 640 and a score of 0 to 1 in one tensor (N, 5), whose grid is that of
    the sides.
    """

    def __init__(self):
        super().__init__()
        self.boxes, self.score = torch.nn.Linear(8, 4), torch.nn.Linear(8, 1)

    def forward(self, x):
        return torch.cat(
            [320 + 320 * torch.tanh(self.boxes(x)), torch.sigmoid(self.score(x))], 1
        ).view(-1, 5)


class AlwaysTheSame(torch.nn.Module):
    def forward(self, x):
        return torch.cat([x, torch.full_like(x[:, :1], 3.0)], 1)


@pytest.mark.slow
def test_answers_that_are_lost_beside_a_large_mean_are_refused(tmp_path):
    source = small_onnx(NearlyConstant(), tmp_path)
    done = quantize(source, tmp_path / "q.onnx")
    assert isinstance(done.exception, LabError), done.output
    assert "does not answer like the original" in str(done.exception)
    assert "at least 15 dB of what varies" in str(done.exception)
    assert not (tmp_path / "q.onnx").exists()


@pytest.mark.slow
def test_beside_boxes_the_channel_that_answers_worst_is_named_and_decides(tmp_path):
    source = small_onnx(BoxesAndScores(), tmp_path)
    passed = quantize(source, tmp_path / "q.onnx")
    whole, weakest = map(
        float,
        re.search(
            r"written: ([\d.]+) dB \(lowest: ([\d.]+) dB at index \d of 5 on axis 1", passed.output
        ).groups(),
    )
    assert 15 <= weakest < whole
    refused = quantize(source, tmp_path / "r.onnx", "--min-sqnr", (weakest + whole) / 2)
    assert isinstance(refused.exception, LabError), refused.output


@pytest.mark.slow
@pytest.mark.parametrize(
    "last", [torch.nn.Linear(8, 1), AlwaysTheSame()], ids=["one column", "a constant answer"]
)
def test_one_column_and_a_constant_beside_others_pass_in_eight_bits(last, tmp_path):
    done = quantize(small_onnx(last, tmp_path), tmp_path / "q.onnx")
    assert done.exit_code == 0, done.output
    assert "same answer" not in done.output or not isinstance(last, torch.nn.Linear)
