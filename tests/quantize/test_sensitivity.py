"""Which layers pay: the scan against single files made by hand."""

import numpy as np
import onnxruntime
import pytest

from labkit.quantize import (
    Calibration,
    logits,
    observe,
    prepared_for_quantizer,
    sensitivity,
    static,
)
from labkit.quantize.integer_grid import sqnr_db


@pytest.fixture(scope="module")
def histograms(onnx_file, train):
    return observe(prepared_for_quantizer(onnx_file), Calibration.of(train, count=64))


def test_each_line_is_the_answer_of_a_file_with_that_layer_alone_quantized(
    onnx_file, histograms, images, tmp_path
):
    table = sensitivity(prepared_for_quantizer(onnx_file), histograms, images)
    names = list(table["layer"])
    assert list(table["kind"]) == ["Conv"] * 6 + ["Gemm"]
    second = static(onnx_file, tmp_path / "q.onnx", histograms, in_float=[names[0], *names[2:]])
    exact, found = logits(onnx_file, images), logits(second, images)
    assert table["sqnr_db"][1] == pytest.approx(sqnr_db(exact, found))


def test_exact_answers_do_not_depend_on_the_integer_kernels_of_the_cpu(
    onnx_file, histograms, images, tmp_path
):
    path = static(onnx_file, tmp_path / "q.onnx", histograms)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    wanted = onnxruntime.InferenceSession(path, options).run(None, {"input": images.numpy()})[0]
    np.testing.assert_array_equal(logits(path, images), wanted)
