"""Building engines: what is asked of the library, what it refuses, and the words that say what
to do.
"""

import hashlib
import sys

import numpy as np
import onnx
import pytest
from engines import made_up_onnx as made_up

from labkit.engines.tensorrt import Settings, build, library
from labkit.engines.tensorrt.builder import Source
from labkit.engines.tensorrt.libraries import MODULES, failed
from labkit.errors import LabError, Unavailable

pytestmark = pytest.mark.skipif(
    pytest.importorskip("tensorrt_rtx_bindings", exc_type=ImportError) is None,
    reason="needs TensorRT-RTX",
)


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    return build(made_up.save(made_up.residual(), tmp_path_factory.mktemp("onnx")))


def attempt(made, folder, **settings):
    return build(made_up.save(made, folder), Settings(**settings))


def test_an_engine_is_built_without_a_gpu(built):
    assert len(built.plan) > 10_000
    assert built.plan[:4] == b"vtrt"
    assert built.seconds > 0


def test_a_shortcut_and_its_relu_are_fused_into_the_convolution_before_them(built):
    (last,) = [kernel for kernel in built.kernels if "conv2" in kernel.nodes]
    assert set(last.nodes) == {"conv2", "shortcut", "relu2"}
    assert len(last.inputs) == 2
    assert (last.precision, last.outputs) == ("fp32", ("fp32",))


def test_the_weights_take_the_memory_they_have_as_numbers(built):
    weights = sum(
        onnx.numpy_helper.to_array(tensor).nbytes for tensor in built.source.model.graph.initializer
    )
    assert weights <= built.memory["weights"] <= 2 * weights
    assert built.memory["activations"] >= 64 * 16 * 8 * 8 * 4


def test_each_image_more_in_the_largest_batch_takes_two_feature_maps_more(tmp_path):
    few, many = (
        attempt(made_up.residual(), tmp_path, batch=(1, 8, batch)).memory["activations"]
        for batch in (64, 1024)
    )
    # at any time two maps of 16 channels are alive
    assert (many - few) / (1024 - 64) == 2 * 16 * 8 * 8 * 4


def test_one_plan_can_hold_code_for_several_gpu_generations(tmp_path):
    assert attempt(made_up.residual(), tmp_path, targets=("SM86", "SM89")).plan


def test_a_model_with_a_fixed_batch_needs_no_profile_of_its_own(tmp_path):
    made = made_up.one_node("Relu")
    made.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 4
    made.graph.output[0].type.tensor_type.shape.dim[0].dim_value = 4
    assert attempt(made, tmp_path).plan


def test_the_source_hash_covers_weights_that_lie_in_another_file(tmp_path):
    made = made_up.residual()
    path = tmp_path / "outside.onnx"
    onnx.save(made, path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    first = Source.read(path).sha256
    weights = bytearray((tmp_path / "weights.bin").read_bytes())
    weights[100] ^= 1
    (tmp_path / "weights.bin").write_bytes(weights)
    assert Source.read(path).sha256 != first


def test_the_source_hash_is_that_of_the_model_as_one_message(tmp_path):
    made = made_up.residual()
    wanted = hashlib.sha256(made.SerializeToString(deterministic=True)).hexdigest()
    assert Source.read(made_up.save(made, tmp_path)).sha256 == wanted


REJECTED = {
    "a zero point": (
        made_up.quantized(3, np.uint8),
        ["'quantize'", "symmetric around 0", "--recipe tensorrt"],
    ),
    "a shifted int8": (made_up.quantized(3), ["'quantize'", "symmetric around 0"]),
    "unsigned integers": (
        made_up.quantized(0, np.uint8),
        ["above 127", "--recipe tensorrt"],
    ),
    "an int32 bias": (made_up.int32_bias(), ["'bias_dq'", "biases in float", "QuantizeBias"]),
    "mixed types": (made_up.mixed_types(), ["'mixed_add'", "strongly typed", "model.half()"]),
    "another runtime's operator": (
        made_up.one_node("QuickGelu", "com.microsoft"),
        ["(QuickGelu)", "plugin"],
    ),
    "a custom operator": (
        made_up.one_node("FastSwish", "lab"),
        ["'the_node' (FastSwish)", "plugin"],
    ),
    "an operator it lacks": (made_up.one_node("Det", output=("batch", 3)), ["(Det)", "plugin"]),
}


@pytest.mark.parametrize("name", REJECTED)
def test_a_graph_that_tensorrt_rejects_is_answered_with_the_node_and_the_way_out(name):
    made, words = REJECTED[name]
    with pytest.raises(LabError, match="TensorRT rejects made_up") as caught:
        # past the gate, which refuses some of these by itself
        build(Source("made_up.onnx", made, ""))
    for word in words:
        assert word in str(caught.value)
    assert "checkMacros" not in str(caught.value)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"targets": ("SM75",)}, ["SM75", "FP16"]),
    ],
)
def test_a_build_that_fails_says_what_was_too_much(settings, words, tmp_path):
    with pytest.raises(LabError, match="cannot build made_up") as caught:
        attempt(made_up.residual(), tmp_path, **settings)
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize("profile", [(8, 4, 64), (0, 1, 2), (1, 8)])
def test_a_profile_out_of_order_is_refused_before_the_library_is_asked(profile):
    with pytest.raises(LabError, match="out of order"):
        Settings(batch=profile)


def test_an_unknown_gpu_generation_is_refused_with_the_known_ones(tmp_path):
    with pytest.raises(LabError, match=r"SM89[\s\S]*SM13"):
        attempt(made_up.residual(), tmp_path, targets=("SM13",))


def test_an_image_size_that_may_vary_is_refused(tmp_path):
    made = made_up.one_node("Relu", output=("batch", 3, "high", 8))
    made.graph.input[0].type.tensor_type.shape.dim[2].dim_param = "high"
    with pytest.raises(LabError, match="more than its batch open"):
        attempt(made, tmp_path)


def test_a_damaged_file_never_reaches_tensorrt(tmp_path, monkeypatch):
    path = made_up.save(made_up.residual(), tmp_path)
    path.write_bytes(path.read_bytes()[:-200])
    monkeypatch.setattr(
        "labkit.engines.tensorrt.builder.library", lambda: pytest.fail("the library was asked")
    )
    with pytest.raises(LabError, match="made_up"):
        build(path)


def test_without_any_tensorrt_the_reason_and_the_fix_are_given(tmp_path, monkeypatch):
    for module in MODULES:
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(Unavailable, match="TensorRT is not here") as caught:
        build(made_up.save(made_up.residual(), tmp_path))
    assert caught.value.fix


def test_a_library_that_cannot_make_a_builder_is_unavailable_with_its_own_words(
    tmp_path, monkeypatch
):
    def refuse(log):
        log.log(library().trt.ILogger.ERROR, "CUDA initialization failure with error: 35")
        raise TypeError("factory function returned nullptr")

    monkeypatch.setattr(library().trt, "Builder", refuse)
    with pytest.raises(Unavailable, match="CUDA initialization failure with error: 35"):
        build(made_up.save(made_up.residual(), tmp_path))


@pytest.mark.parametrize(
    ("message", "word"),
    [
        (
            "Network has dynamic or shape inputs, but no optimization profile has been defined.",
            "largest batch",
        ),
        ("Dynamic input tensor input is missing dimensions in profile 0.", "largest batch"),
        (
            "Invalid optimization profiles for input tensors input, please ensure MIN<=OPT<=MAX",
            "order",
        ),
        (
            "Dimension mismatch for tensor input and profile 0. At dimension axis "
            "2, profile has min=9",
            "only the batch",
        ),
        (
            "Cannot compile for target(s) sm80, because the model contains "
            "HW-specific datatypes: fp8_e4m3.",
            "SM80",
        ),
        ("Failed to convert ONNX date type to TensorRT data type.", "Python"),
    ],
)
def test_a_known_message_has_a_way_out(message, word):
    assert word in failed("net.onnx", ["something else", message]).fix


def test_an_unknown_message_is_shown_without_source_lines():
    text = (
        "thing: Error Code 4: API Usage Error (Something odd. In validate at "
        "/_src/optimizer/api/network.cpp:4023)"
    )
    assert "network.cpp" not in failed("net.onnx", [text]).found
    assert "Something odd" in failed("net.onnx", [text]).found
