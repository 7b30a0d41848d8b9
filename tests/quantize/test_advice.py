"""The advice after a refusal names only what was not tried, and what the command takes."""

import re
from itertools import product

import pytest
import torch
from typer.testing import CliRunner

from labkit import cli
from labkit.errors import LabError
from labkit.export import to_onnx
from labkit.quantize import advice
from labkit.quantize.quantize_file import PRECISIONS

SETTINGS = {
    "precision": PRECISIONS,
    "with_data": [False, True],
    "automatic": [False, True],
    "loss": [0.0, 0.5],
    "with_classes": [False, True],
    "method": ["minmax", "percentile", "entropy"],
    "recipe": ["tensorrt", "onnxruntime"],
    "weight_bits": ["recipe", "7", "8", "auto"],
}


def possible(settings):
    """Does the command take these settings, and reach the comparison with them?"""
    int8 = settings["precision"] in ("int8", "int8+fp16")
    if not int8 and (settings["automatic"] or settings["recipe"] != "tensorrt"):
        return False
    return settings["with_data"] or settings["precision"] in ("fp16", "int8-blocks")


COMBINATIONS = [
    settings
    for values in product(*SETTINGS.values())
    if possible(settings := dict(zip(SETTINGS, values, strict=True)))
]


@pytest.mark.parametrize("vnni", [False, True])
def test_what_was_tried_already_is_not_advised_again(vnni, monkeypatch):
    monkeypatch.setattr(advice, "adds_int8", lambda: vnni)
    for settings in COMBINATIONS:
        text = advice.remedies_in_words(**settings)
        options = dict(re.findall(r"--([\w-]+) ?([\w+-]*)", text))
        assert len(options) >= 2, settings
        assert settings["precision"] not in re.findall(r"--precision ([\w+]+)", text), settings
        assert options.get("keep") != "auto" or not settings["automatic"], settings
        assert "method" not in options or settings["method"] == "minmax", settings
        assert "data" not in options or not settings["with_data"], settings
        if "loss" in options:
            assert settings["automatic"] and settings["loss"] and settings["with_classes"], settings
        if "weight-bits" in options:
            assert vnni and settings["recipe"] != "tensorrt", settings
            assert settings["weight_bits"] in ("recipe", "7"), settings


def test_a_refusal_after_keep_auto_does_not_advise_keep_auto(tmp_path, monkeypatch):
    """The layers were chosen on other examples than those of the comparison, which loses more."""
    from labkit.engines import fidelity

    poor = [(fidelity.AS_WRITTEN, fidelity.Fidelity(10.0, 0.9), None)]
    monkeypatch.setattr(fidelity, "quantized_apart", lambda *args, **settings: poor)
    torch.manual_seed(0)
    layers = (
        torch.nn.Conv2d(1, 4, 5, 2),
        torch.nn.ReLU(),
        torch.nn.Flatten(),
        torch.nn.Linear(576, 3),
    )
    network = torch.nn.Sequential(*layers).eval()
    source = to_onnx(network, torch.randn(2, 1, 28, 28), tmp_path / "net.onnx")
    words = ["quantize", source, tmp_path / "q.onnx", "--data", "fashion-mnist", "--count", 64]
    words += ["--keep", "auto", "--loss", 20, "--recipe", "onnxruntime"]
    error = CliRunner().invoke(cli.app, list(map(str, words))).exception
    assert isinstance(error, LabError)
    assert "the file is kept as q.rejected.onnx" in error.found
    assert "--keep auto" not in error.fix
    assert "a --loss below 20" in error.fix
