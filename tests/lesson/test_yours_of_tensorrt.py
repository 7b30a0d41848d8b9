"""The last section of the lesson on TensorRT: both questions to networks of several kinds,
without labkit.
"""

import ast
import importlib.util
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType

import nbformat
import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
from torch import nn
from yours import TwoOutputs, cells_of_yours

from labkit.files import root
from labkit.lesson.exercises.l17_tensorrt_deployment import build_engine, layer_types

NAME = "17_tensorrt_deployment"
HAS_TENSORRT = importlib.util.find_spec("tensorrt_rtx_bindings") is not None
WANTED = ("to_onnx", "Images", "quantize", "same_class", "products", "Steps")


class Tokens(nn.Module):
    """A transformer encoder on sequences: (n, 5, 8) -> (n, 3)."""

    def __init__(self):
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        self.head = nn.Linear(40, 3)

    def forward(self, x):
        return self.head(self.layer(x).flatten(1))


class TwoScales(nn.Module):
    """Takes a first number that is 3,000 times as large as the other 11: on one grid these
    become 0.
    """

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(12, 12), nn.Linear(12, 12)
        self.first.weight.data = torch.diag(1 / LARGE)
        self.second.weight.data = torch.eye(12)

    def forward(self, x):
        return self.second(self.first(x))


LARGE = torch.tensor([3_000.0] + [1.0] * 11)
NETWORKS = {
    "a small ResNet": (
        lambda: nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(288, 3)),
        (3, 8, 8),
    ),
    "a transformer": (Tokens, (5, 8)),
    "two outputs": (TwoOutputs, (12,)),
}


def page():
    """The functions and classes that the section takes from the page, with the answers to its
    exercises.
    """
    bound = {
        "np": np,
        "onnx": onnx,
        "onnxruntime": onnxruntime,
        "torch": torch,
        "Path": Path,
        "Counter": Counter,
    }
    bound |= {
        "QuantFormat": QuantFormat,
        "QuantType": QuantType,
        "quantize_static": quantize_static,
    }
    bound |= {"CalibrationDataReader": CalibrationDataReader}
    if HAS_TENSORRT:
        import tensorrt_rtx_bindings

        bound["trt"] = tensorrt_rtx_bindings
    cells = nbformat.read(root() / "notebooks" / f"{NAME}.ipynb", as_version=4).cells
    for cell in cells:
        source = cell.source.removeprefix("%%attempt\n")
        for statement in ast.parse(source).body if cell.cell_type == "code" else ():
            if getattr(statement, "name", None) in WANTED and (
                HAS_TENSORRT or statement.name != "Steps"
            ):
                exec(ast.unparse(statement), bound)
    return bound | {"build_engine": build_engine, "layer_types": layer_types}


def yours(network, shape, tmp_path, monkeypatch, *, scale=1):
    """Run the section on a network and random inputs; return what it has bound."""
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    mine = ModuleType("mine")
    mine.network, mine.inputs = network(), scale * torch.randn(200, *shape)
    monkeypatch.setitem(sys.modules, "mine", mine)
    bound = page()
    for source in cells_of_yours(NAME):
        if source.startswith("%%attempt") and not HAS_TENSORRT:
            continue
        exec(source.removeprefix("%%attempt\n"), bound)
    return bound


@pytest.mark.slow
@pytest.mark.parametrize("kind", NETWORKS)
def test_the_section_asks_both_questions_of_a_network(kind, tmp_path, monkeypatch, capsys):
    bound = yours(*NETWORKS[kind], tmp_path, monkeypatch)
    printed = capsys.readouterr().out
    assert 90 < bound["agree"] <= 100
    assert "are the answers right?" in printed
    if HAS_TENSORRT:
        assert Path("mine-int8.plan").stat().st_size > 1_000
        assert set(bound["types"]) <= set(bound["products"]("mine-int8.onnx"))
        assert "Int8" in bound["types"].values()
        assert all(name in printed for name in bound["unasked"])


@pytest.mark.slow
def test_a_network_that_loses_its_answers_gets_the_layer_in_float_that_brings_them_back(
    tmp_path, monkeypatch, capsys
):
    bound = yours(TwoScales, (12,), tmp_path, monkeypatch, scale=LARGE)
    (name,) = bound["kept_in_float"]
    before, after = bound["agreement"](), bound["agreement"]([name])
    assert before < 99
    assert after == max(bound["tried"].values()) > before
    assert f"with {name} in float: {after:.1f} %" in capsys.readouterr().out
    if HAS_TENSORRT:
        assert bound["types"][name] == "Float"
        assert name in bound["unasked"]
