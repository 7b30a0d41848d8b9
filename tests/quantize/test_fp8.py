"""FP8 in the file: the numbers against ml_dtypes and by hand, the graph, and a real engine."""

import ml_dtypes
import numpy as np
import onnx
import pytest

from labkit import engines
from labkit.errors import LabError, Unavailable
from labkit.export import checked, precision_of
from labkit.quantize import Calibration, logits, observe, prepared_for_quantizer
from labkit.quantize.fp8 import LARGEST, to_fp8
from labkit.quantize.integer_grid import sqnr_db

FP8 = onnx.TensorProto.FLOAT8E4M3FN


@pytest.fixture(scope="module")
def fp8_file(onnx_file, train, tmp_path_factory):
    seen = observe(prepared_for_quantizer(onnx_file), Calibration.of(train, count=64))
    return to_fp8(onnx_file, tmp_path_factory.mktemp("fp8") / "fp8.onnx", seen)


def test_the_largest_number_is_448():
    assert float(ml_dtypes.finfo(ml_dtypes.float8_e4m3fn).max) == LARGEST


def test_the_stored_weights_times_their_scale_are_the_weights_to_a_sixteenth(fp8_file, onnx_file):
    before = {t.name: onnx.numpy_helper.to_array(t) for t in onnx.load(onnx_file).graph.initializer}
    after = {t.name: t for t in onnx.load(fp8_file).graph.initializer}
    weights = [name for name in before if f"{name}_fp8" in after]
    assert len(weights) == 7
    for name in weights:
        assert after[f"{name}_fp8"].data_type == FP8
        stored = onnx.numpy_helper.to_array(after[f"{name}_fp8"]).astype(np.float32)
        found = stored * onnx.numpy_helper.to_array(after[f"{name}_scale"])
        normal = np.abs(stored) >= 2**-6  # below, the step stays the same
        relative = np.abs(found - before[name])[normal] / np.abs(before[name])[normal]
        assert relative.max() <= 1 / 16 + 1e-3
        assert name not in after


def test_the_answers_change_little_and_the_file_is_small(fp8_file, onnx_file, images):
    assert sqnr_db(logits(onnx_file, images), logits(fp8_file, images)) > 15
    assert fp8_file.stat().st_size < 0.4 * onnx_file.stat().st_size


def test_the_file_passes_the_gate(fp8_file):
    kinds = [node.op_type for node in checked(fp8_file).graph.node]
    assert (kinds.count("QuantizeLinear"), kinds.count("DequantizeLinear")) == (7, 14)


def test_tensorrt_builds_it_for_a_gpu_that_has_fp8(fp8_file):
    from labkit.engines.tensorrt import Settings, build, compared

    try:
        built = build(fp8_file, Settings(targets=("SM89",)))
    except Unavailable as error:
        pytest.skip(error.what)
    asked = compared(built.source.model, built.kernels)
    assert set(asked["requested"]) == {"fp8"}
    assert len(built.plan) > 0


def test_no_data_is_refused(onnx_file, tmp_path):
    with pytest.raises(LabError, match="real data"):
        to_fp8(onnx_file, tmp_path / "q.onnx", None)


def test_it_is_a_precision_of_its_own(fp8_file):
    assert precision_of(onnx.load(fp8_file)) == "fp8"


@pytest.mark.parametrize("engine", ["onnxruntime", "openvino"])
def test_engines_without_fp8_name_the_one_that_has_it(engine, fp8_file, images):
    with pytest.raises(Unavailable, match=rf"{engine} has no fp8[\s\S]*tensorrt"):
        engines.load(engine, fp8_file, images[:2], precision="fp8")
