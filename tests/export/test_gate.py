"""The gate for ONNX files: hostile ones are refused before anything uses them, good ones pass."""

import re
import shutil
import sys

import numpy as np
import onnx
import pytest
import torch
from hostile_onnx import FILES, HANGS
from onnx import helper, numpy_helper
from sample_onnx import good_model, save, with_external
from typer.testing import CliRunner

from labkit import cli
from labkit.errors import LabError
from labkit.export import as_written, checked, gate, inspection, precision_of
from labkit.export.runtime import write_unchecked


@pytest.mark.slow
@pytest.mark.parametrize("name", FILES)
def test_a_hostile_file_is_refused_with_its_name_and_the_reason(name, tmp_path, monkeypatch):
    path = FILES[name].make(tmp_path)
    assert gate.LIMIT_S < 60
    if FILES[name].says == HANGS:
        monkeypatch.setattr(gate, "LIMIT_S", 3)
    with pytest.raises(LabError, match=re.escape(FILES[name].says)) as caught:
        checked(path)
    assert caught.value.what.startswith("model.onnx is refused. ")
    assert caught.value.fix


def test_when_the_process_that_opens_a_file_dies_the_file_is_refused_and_the_next_one_is_read(
    tmp_path, monkeypatch
):
    path = save(good_model(), tmp_path)
    with monkeypatch.context() as broken:
        broken.setattr(sys, "executable", shutil.which("false"))
        with pytest.raises(LabError, match="ended with status 1"):
            checked(path)
    assert checked(path) == good_model()


def test_a_file_is_inspected_once_however_often_it_is_read(tmp_path, monkeypatch):
    path = save(good_model(), tmp_path)
    checked(path)
    monkeypatch.setattr(sys, "executable", shutil.which("false"))
    assert checked(path) == good_model()


def test_a_file_that_this_process_wrote_is_not_inspected_until_it_is_changed(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "executable", shutil.which("false"))
    path = write_unchecked(good_model(), tmp_path / "own.onnx")
    model = checked(path)
    model.doc_string = "changed"
    onnx.save(model, path)
    with pytest.raises(LabError, match="ended with status 1"):
        checked(path)


def test_a_child_trusts_what_its_parent_had_inspected_until_it_is_changed(tmp_path, monkeypatch):
    path = save(good_model(), tmp_path)
    checked(path)
    known = gate.known_as_sound()
    monkeypatch.setattr(gate, "_inspected", set())  # as in a new process
    monkeypatch.setattr(gate, "_made_here", set())
    monkeypatch.setattr(sys, "executable", shutil.which("false"))
    with pytest.raises(LabError, match="ended with status 1"):
        checked(path)
    gate.trust(known)
    model = checked(path)
    assert model == good_model()
    model.doc_string = "changed"
    onnx.save(model, path)
    with pytest.raises(LabError, match="ended with status 1"):
        checked(path)


COUNTS_PROCESSES = "import os\nwith open({log!r}, 'a') as log:\n    log.write('one\\n')\n"


@pytest.mark.slow
def test_quantizing_starts_three_processes_one_for_each_file_and_one_that_compares(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(gate, "_made_here", set())  # another test wrote the same model
    source, log = save(good_model(), tmp_path), tmp_path / "started.txt"
    (tmp_path / "watch").mkdir()
    (tmp_path / "watch/sitecustomize.py").write_text(COUNTS_PROCESSES.format(log=str(log)))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "watch"))
    words = ["quantize", str(source), str(tmp_path / "small.onnx"), "--precision", "fp16"]
    result = CliRunner().invoke(cli.app, words)
    assert result.exit_code == 0, result.output
    assert log.read_text().split() == ["one"] * 3


def test_a_secret_outside_the_folder_is_never_opened(tmp_path, monkeypatch):
    opened = []
    monkeypatch.setattr(inspection, "_limit_memory", lambda *args: None)  # else that of the tests
    monkeypatch.setattr(onnx, "load_external_data_for_model", lambda *args: opened.append(args))
    for name in ("external data climbs out", "external data in an attribute"):
        place = tmp_path / name.replace(" ", "-")
        place.mkdir()
        with pytest.raises(LabError, match="outside its folder"):
            inspection.inspect(FILES[name].make(place))
    assert opened == []


EXTERNAL = [name for name in FILES if name.startswith("external data")]


@pytest.mark.parametrize("name", EXTERNAL)
def test_the_refusal_says_whether_the_data_lies_outside_the_folder(name, tmp_path, monkeypatch):
    monkeypatch.setattr(inspection, "_limit_memory", lambda *args: None)  # else that of the tests
    climbs = ("climbs out", "at an absolute path", "through a", "in an attribute")
    outside = name.removeprefix("external data ").startswith(climbs)
    with pytest.raises(LabError) as caught:
        inspection.inspect(FILES[name].make(tmp_path))
    assert (caught.value.what == "It names data outside its folder.") == outside


def with_large_weights(rows=256, claimed=128):
    """x (n, 256) @ w (rows, 128), reshaped to a constant shape; the output claims `claimed`
    numbers per row.
    """
    ports = (("x", 1, ["n", 256]), ("y", 1, ["n", claimed]))
    values = [helper.make_tensor_value_info(*port) for port in ports]
    stored = {"w": np.ones((rows, 128), np.float32), "shape": np.array([-1, 128])}
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["xw"]),
        helper.make_node("Reshape", ["xw", "shape"], ["y"]),
    ]
    weights = [numpy_helper.from_array(value, name) for name, value in stored.items()]
    graph = helper.make_graph(nodes, "g", values[:1], values[1:], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


@pytest.mark.parametrize(("rows", "claimed"), [(255, 128), (256, 127)])
def test_large_weights_that_do_not_fit_their_graph_are_refused(rows, claimed, tmp_path):
    assert checked(save(with_large_weights(claimed=128), tmp_path))
    with pytest.raises(LabError, match="does not hold together"):
        checked(save(with_large_weights(rows, claimed), tmp_path))


def test_large_weights_with_fewer_bytes_than_their_shape_are_refused(tmp_path):
    model = with_large_weights(claimed=128)
    weights = model.graph.initializer[0]
    weights.raw_data = weights.raw_data[:-4]
    with pytest.raises(LabError, match="does not hold together"):
        checked(save(model, tmp_path))


def grouped_by_nothing(folder):
    """A convolution of 0 groups."""
    values = [
        helper.make_tensor_value_info(*port)
        for port in (("input", 1, ["n", 3, 8, 8]), ("y", 1, ["n", 4, 6, 6]))
    ]
    weights = numpy_helper.from_array(np.ones((4, 3, 3, 3), np.float32), "w")
    node = helper.make_node("Conv", ["input", "w"], ["y"], group=0)
    model = helper.make_model(
        helper.make_graph([node], "g", values[:1], values[1:], [weights]),
        opset_imports=[helper.make_opsetid("", 20)],
        ir_version=10,
    )
    return save(model, folder)


def odd_length(folder):
    """A length that Python reads as 48, and C++ does not."""
    path = with_external(folder, "weights.bin", length=48)
    model = onnx.load(path, load_external_data=False)
    model.graph.initializer[0].external_data[-1].value = "4_8"
    return save(model, folder)


@pytest.mark.parametrize(
    ("make", "shape"), [(grouped_by_nothing, (1, 3, 8, 8)), (odd_length, (1, 4))]
)
def test_what_passes_the_gate_and_cannot_run_is_a_lab_error_with_the_reason(make, shape, tmp_path):
    with pytest.raises(LabError) as caught:
        as_written(make(tmp_path), level="all")(torch.ones(shape))
    assert "group must be" in caught.value.found or "parse value" in caught.value.found


def test_a_good_file_passes_as_it_is(tmp_path):
    assert checked(save(good_model(), tmp_path)) == good_model()


def test_a_file_whose_external_data_is_gone_names_what_is_missing(tmp_path):
    path = with_external(tmp_path, "weights.bin")
    (tmp_path / "weights.bin").unlink()
    with pytest.raises(LabError, match=r"weights is missing") as caught:
        checked(path)
    assert caught.value.expected == "weights.bin beside it"
    assert "same folder" in caught.value.fix


@pytest.mark.parametrize("location", ["weights.bin", "inner/weights.bin"])
def test_a_good_file_with_external_data_passes_with_its_weights(location, tmp_path):
    path = with_external(tmp_path, location)
    if "/" in location:
        (tmp_path / "inner").mkdir()
        (tmp_path / "weights.bin").rename(tmp_path / location)
    found, wanted = checked(path), good_model()
    arrays = [onnx.numpy_helper.to_array(model.graph.initializer[0]) for model in (found, wanted)]
    np.testing.assert_array_equal(*arrays)


def test_operators_of_onnx_runtime_and_functions_of_the_model_itself_pass(tmp_path):
    model = good_model()
    model.opset_import.append(onnx.helper.make_opsetid("com.microsoft", 1))
    model.opset_import.append(onnx.helper.make_opsetid("own", 1))
    model.graph.node[2].CopyFrom(onnx.helper.make_node("twice", ["sum"], ["logits"], domain="own"))
    steps = [onnx.helper.make_node("FastGelu", ["a"], ["b"], domain="com.microsoft")]
    model.functions.append(
        onnx.helper.make_function(
            "own", "twice", ["a"], ["b"], steps, [onnx.helper.make_opsetid("com.microsoft", 1)]
        )
    )
    assert checked(save(model, tmp_path)).functions[0].name == "twice"


@pytest.mark.slow
def test_whatever_bytes_are_damaged_the_answer_is_a_model_or_a_lab_error(tmp_path):
    data, random, refused = good_model().SerializeToString(), np.random.default_rng(0), 0
    for _ in range(20):
        damaged = bytearray(data)
        for place in random.integers(0, len(data), random.integers(1, 4)):
            damaged[place] = random.integers(0, 256)
        path = tmp_path / "damaged.onnx"
        path.write_bytes(damaged)
        try:
            checked(path)
        except LabError:
            refused += 1
    assert refused > 7


@pytest.mark.parametrize("content", [b"", b"not a model", b"\x00" * 100])
def test_what_is_no_onnx_file_is_refused(content, tmp_path):
    path = tmp_path / "model.onnx"
    path.write_bytes(content)
    with pytest.raises(LabError, match=r"model\.onnx is refused"):
        checked(path)


def test_a_file_of_64_gb_is_refused_unread(tmp_path):
    with (tmp_path / "model.onnx").open("wb") as file:
        file.truncate(2**36)
    with pytest.raises(LabError, match="less than 2 GiB"):
        checked(tmp_path / "model.onnx")


@pytest.mark.parametrize("name", ["missing.onnx", "."])
def test_a_path_without_a_file_is_refused(name, tmp_path):
    with pytest.raises(LabError, match="no such file"):
        checked(tmp_path / name)


def test_the_precision_is_read_off_the_weights_and_the_q_dq_nodes_and_fp8_is_not_int8():
    model = good_model()
    assert precision_of(model) == "fp32"
    for tensor in model.graph.initializer:
        half = onnx.numpy_helper.to_array(tensor).astype(np.float16)
        tensor.CopyFrom(onnx.numpy_helper.from_array(half, tensor.name))
    assert precision_of(model) == "fp16"
    model.graph.node.add(op_type="DequantizeLinear", input=["weight", "scale"])
    assert precision_of(model) == "int8"
    model.graph.initializer[0].data_type = onnx.TensorProto.FLOAT8E4M3FN
    assert precision_of(model) == "fp8"
