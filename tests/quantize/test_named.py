"""From names: what `labkit quantize` does."""

import re

import onnx
import pytest
import torch
from typer.testing import CliRunner

from labkit import cli
from labkit.errors import LabError
from labkit.export import parity, precision_of, to_onnx
from labkit.quantize import by_name


def run(*words):
    result = CliRunner().invoke(cli.app, ["quantize", *map(str, words)])
    if result.exception:
        raise result.exception
    return result.output


@pytest.mark.parametrize("recipe", ["tensorrt", "onnxruntime"])
def test_the_command_writes_an_int8_file_that_computes_the_same(recipe, onnx_file, network, images, tmp_path):
    out = tmp_path / "int8.onnx"
    said = run(onnx_file, out, "--data", "fashion-mnist", "--count", 64, "--recipe", recipe, "--method", "percentile")
    assert re.search(r"int8\.onnx \(\d+(\.\d)? kB, 3\d% of", said)
    assert precision_of(onnx.load(out)) == "int8"
    assert parity(network, out, [images]).cosine > 0.99


def test_half_precision_needs_no_data_and_both_together_are_smaller_still(onnx_file, tmp_path):
    half = by_name(onnx_file, tmp_path / "half.onnx", "fp16")
    both = by_name(onnx_file, tmp_path / "both.onnx", "int8+fp16", data="fashion-mnist", count=64)
    assert precision_of(onnx.load(half)) == "fp16"
    assert both.stat().st_size < half.stat().st_size < onnx_file.stat().st_size


def test_grey_images_become_colour_and_large_for_a_model_that_wants_both(tmp_path):
    net = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.Flatten())
    source = to_onnx(net, torch.randn(2, 3, 40, 40), tmp_path / "colour.onnx")
    path = by_name(source, tmp_path / "q.onnx", data="fashion-mnist", count=64)
    assert precision_of(onnx.load(path)) == "int8"


def test_int8_without_data_an_unknown_precision_and_a_model_of_tokens_are_refused(onnx_file, tmp_path):
    with pytest.raises(LabError, match="--data fashion-mnist"):
        by_name(onnx_file, tmp_path / "q.onnx")
    with pytest.raises(LabError, match="int8 or fp8"):
        by_name(onnx_file, tmp_path / "q.onnx", "int4")
    words = torch.nn.Sequential(torch.nn.Embedding(10, 4), torch.nn.Flatten())
    source = to_onnx(words, torch.zeros(2, 5, dtype=torch.int64), tmp_path / "words.onnx")
    with pytest.raises(LabError, match="does not take images"):
        by_name(source, tmp_path / "q.onnx", data="fashion-mnist")
    assert not (tmp_path / "q.onnx").exists()


def test_a_file_that_is_no_onnx_file_is_refused(tmp_path):
    (tmp_path / "bad.onnx").write_bytes(b"no protobuf")
    with pytest.raises(LabError):
        by_name(tmp_path / "bad.onnx", tmp_path / "q.onnx", "fp16")
