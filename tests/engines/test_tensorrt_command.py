"""`labkit build`: an engine file, and what each kind of operator computes in."""

import shlex

import numpy as np
import pytest
from engines import made_up_onnx as made_up
from typer.testing import CliRunner

from labkit import cli
from labkit.errors import LabError

pytest.importorskip("tensorrt_rtx_bindings", exc_type=ImportError)


def call(*words):
    return CliRunner().invoke(cli.app, ["build", *words])


def test_the_command_builds_and_says_what_is_computed_in_what(tmp_path, own_artifacts):
    path = str(made_up.save(made_up.residual(), tmp_path))
    first, second = call(path, "--batch", "1:2:4"), call(path, "--batch", "1:2:4")
    assert "Conv: 2 ask for fp32, computed in fp32" in first.output
    assert ", built," in first.output and ", reused," in second.output
    assert len(list((own_artifacts / "engines").glob("*.engine"))) == 1


@pytest.mark.parametrize(
    "text", ["8", "1:8", "a:b:c", "8:1:64", "1:1:99999999999", "0:1:2", "-1:1:2", "1:1:٤"]
)
def test_batches_that_are_no_range_are_refused(text, tmp_path):
    result = call(str(made_up.save(made_up.residual(), tmp_path)), "--batch", text)
    assert result.exit_code != 0
    assert "expected" in str(result.exception)


def test_a_refused_build_advises_one_command_that_can_be_copied(tmp_path):
    path = made_up.save(made_up.quantized(3, np.uint8), tmp_path, "small u8.onnx")
    error = call(str(path)).exception
    assert isinstance(error, LabError)
    program, verb, *rest = shlex.split(error.fix)
    assert (program, verb) == ("labkit", "quantize")
    assert rest == [
        "FLOAT32.onnx",
        "small u8-tensorrt.onnx",
        "--data",
        "DATA_SET",
        "--recipe",
        "tensorrt",
    ]


def test_a_small_int8_engine_that_is_mostly_code_says_so(tmp_path):
    assert (
        "Most of the file is code, not weights"
        in call(str(made_up.save(made_up.residual(), tmp_path))).output
    )
