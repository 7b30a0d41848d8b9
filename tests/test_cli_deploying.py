"""`labkit export`, `quantize` and `build`: how sizes are written, and what a refused build advises."""

import pytest
from typer.testing import CliRunner

from labkit import cli
from labkit.cli.deploying import size
from labkit.engines import tensorrt
from labkit.engines.tensorrt.advice import QUANTIZE
from labkit.errors import LabError


@pytest.mark.parametrize(
    ("count", "words"), [(312, "0.312 kB"), (48_200, "48.2 kB"), (999_000, "999 kB"), (44_736_000, "44.7 MB")]
)
def test_small_files_are_given_in_kilobytes(count, words):
    assert size(count) == words


@pytest.mark.parametrize("fix", [QUANTIZE, f"{QUANTIZE}, which leaves biases in float", "wait", None])
def test_a_refused_build_names_the_command_that_helps(monkeypatch, fix):
    def refuse(path, settings):
        raise LabError(f"TensorRT rejects {path.name}.", fix=fix)

    monkeypatch.setattr(tensorrt, "obtain", refuse)
    found = CliRunner().invoke(cli.app, ["build", "small-u8.onnx"])
    assert isinstance(found.exception, LabError) or "TensorRT rejects" in found.output
    words = f"{found.output} {found.exception}"
    helps = "labkit quantize FLOAT32.onnx small-u8-tensorrt.onnx --data fashion-mnist --recipe tensorrt" in words
    assert helps == bool(fix and QUANTIZE in fix)
    assert "labkit.quantize.static" not in words
