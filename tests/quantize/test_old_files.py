"""Files of old operator sets, which know no scale for each channel: each precision is right or
says why not.
"""

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

from labkit.errors import LabError
from labkit.export import as_written, precision_of
from labkit.export.variation import likeness
from labkit.quantize import (
    Calibration,
    logits,
    prepared_for_quantizer,
    static,
    to_fp8,
    to_fp16,
    weight_only,
)


def old_file(path, opset):
    """A convolution, batch norm, pooling, dropout and a Gemm, as exporters of that time wrote
    them.
    """
    random = np.random.default_rng(0)
    arrays = {
        "kernel": random.normal(size=(8, 1, 3, 3)) / 3,
        "scale": random.uniform(0.5, 2, 8),
        "shift": random.normal(size=8),
        "mean": random.normal(size=8) / 10,
        "variance": random.uniform(0.5, 2, 8),
        "weight": random.normal(size=(10, 8)),
        "bias": random.normal(size=10),
    }
    nodes = [
        helper.make_node("Conv", ["input", "kernel"], ["maps"], name="conv", kernel_shape=[3, 3]),
        helper.make_node(
            "BatchNormalization",
            ["maps", "scale", "shift", "mean", "variance"],
            ["normed"],
            name="norm",
        ),
        helper.make_node("Relu", ["normed"], ["positive"], name="relu"),
        helper.make_node("GlobalAveragePool", ["positive"], ["pooled"], name="pool"),
        helper.make_node("Dropout", ["pooled"], ["dropped"], name="dropout", ratio=0.5),
        helper.make_node("Flatten", ["dropped"], ["flat"], name="flatten"),
        helper.make_node("Gemm", ["flat", "weight", "bias"], ["logits"], name="gemm", transB=1),
    ]
    graph = helper.make_graph(
        nodes,
        "old",
        [helper.make_tensor_value_info("input", TensorProto.FLOAT, ["batch", 1, 28, 28])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", 10])],
        [numpy_helper.from_array(array.astype(np.float32), name) for name, array in arrays.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=4)
    onnx.checker.check_model(model, full_check=True)
    onnx.save(model, path)
    return path


@pytest.mark.slow
@pytest.mark.parametrize("opset", [7, 9, 11])
def test_an_old_file_is_quantized_and_answers_like_itself(opset, train, images, tmp_path):
    source = old_file(tmp_path / "old.onnx", opset)
    data = Calibration.of(train, count=128)
    written = {
        "int8": static(source, tmp_path / "int8.onnx", data),
        "fp16": to_fp16(source, tmp_path / "half.onnx"),
        "fp32": weight_only(source, tmp_path / "blocks.onnx", block=16),
    }
    expected = as_written(source)(images).numpy()
    for precision, path in written.items():
        if precision != "fp32":
            assert precision_of(onnx.load(path)) == precision
        assert likeness(expected, as_written(path)(images).numpy()).db > 20
    with pytest.raises(LabError, match=r"too old for FP8[\s\S]*19"):
        to_fp8(source, tmp_path / "fp8.onnx", data)
    assert not (tmp_path / "fp8.onnx").exists()


def test_an_operator_that_is_gone_in_later_sets_is_replaced_and_answers_the_same(images, tmp_path):
    path = old_file(tmp_path / "old.onnx", 7)
    model = onnx.load(path)
    node = helper.make_node(
        "Upsample", ["positive"], ["larger"], name="larger", scales=[1.0, 1.0, 2.0, 2.0]
    )
    model.graph.node.insert(3, node)
    model.graph.node[4].input[0] = "larger"
    onnx.save(model, path)
    raised = prepared_for_quantizer(path)
    assert raised.opset_import[0].version >= 13
    assert likeness(logits(path, images), logits(raised, images)).lowest_db > 80


def test_float_inputs_of_an_old_file_stay_float(tmp_path):
    path = to_fp16(old_file(tmp_path / "old.onnx", 9), tmp_path / "half.onnx")
    assert as_written(path)(torch.ones(1, 1, 28, 28)).dtype == torch.float32
