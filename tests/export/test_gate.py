"""The gate for ONNX files: hostile ones are refused before anything uses them, good ones pass."""

import tracemalloc

import numpy as np
import onnx
import pytest
from hostile_onnx import FILES
from sample_onnx import good_model, save, with_external

from labkit.errors import LabError
from labkit.export import checked, precision_of


@pytest.mark.parametrize("name", FILES)
def test_a_hostile_file_is_refused_with_its_name_and_the_reason(name, tmp_path):
    path = FILES[name].make(tmp_path)
    with pytest.raises(LabError, match=FILES[name].says) as caught:
        checked(path)
    assert caught.value.what.startswith("model.onnx is refused. ")
    assert caught.value.fix


def accepted(gate, folder):
    """The names of the hostile files that a gate lets through."""
    through = []
    for number, (name, hostile) in enumerate(FILES.items()):
        if "pipe" in name:
            continue  # a gate that opens it never comes back
        place = folder / str(number)
        place.mkdir()
        try:
            gate(hostile.make(place))
            through.append(name)
        except Exception:
            pass
    return through


def test_the_files_would_get_through_a_gate_that_only_reads_them(tmp_path):
    through = accepted(lambda path: onnx.load(path, load_external_data=False), tmp_path)
    assert len(through) >= 20


@pytest.mark.filterwarnings("ignore")
def test_and_some_through_one_that_only_asks_the_onnx_checker(tmp_path):
    through = accepted(lambda path: onnx.checker.check_model(path), tmp_path)
    assert {"4 GB computed", "sparse bomb"} <= set(through)


def test_a_secret_outside_the_folder_is_never_opened(tmp_path, monkeypatch):
    opened = []
    monkeypatch.setattr(onnx, "load_external_data_for_model", lambda *args: opened.append(args))
    for name in ("external data climbs out", "external data in an attribute"):
        place = tmp_path / name.replace(" ", "-")
        place.mkdir()
        with pytest.raises(LabError):
            checked(FILES[name].make(place))
    assert opened == []


def test_a_claim_of_gigabytes_costs_no_memory(tmp_path):
    path = FILES["4 GB claimed"].make(tmp_path)
    tracemalloc.start()
    with pytest.raises(LabError):
        checked(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 50e6


def test_a_good_file_passes_as_it_is(tmp_path):
    assert checked(save(good_model(), tmp_path)) == good_model()


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
        onnx.helper.make_function("own", "twice", ["a"], ["b"], steps, [onnx.helper.make_opsetid("com.microsoft", 1)])
    )
    assert checked(save(model, tmp_path)).functions[0].name == "twice"


def test_whatever_bytes_are_damaged_the_answer_is_a_model_or_a_lab_error(tmp_path):
    data, random, refused = good_model().SerializeToString(), np.random.default_rng(0), 0
    for _ in range(300):
        damaged = bytearray(data)
        for place in random.integers(0, len(data), random.integers(1, 4)):
            damaged[place] = random.integers(0, 256)
        path = tmp_path / "damaged.onnx"
        path.write_bytes(damaged)
        try:
            checked(path)
        except LabError:
            refused += 1
    assert refused > 100


@pytest.mark.parametrize("content", [b"", b"not a model", b"\x00" * 100])
def test_what_is_no_onnx_file_is_refused(content, tmp_path):
    path = tmp_path / "model.onnx"
    path.write_bytes(content)
    with pytest.raises(LabError, match=r"model\.onnx is refused"):
        checked(path)


@pytest.mark.parametrize("name", ["missing.onnx", "."])
def test_a_path_without_a_file_is_refused(name, tmp_path):
    with pytest.raises(LabError, match="no such file"):
        checked(tmp_path / name)


def test_the_precision_is_read_off_the_weights_and_the_q_dq_nodes():
    model = good_model()
    assert precision_of(model) == "fp32"
    for tensor in model.graph.initializer:
        half = onnx.numpy_helper.to_array(tensor).astype(np.float16)
        tensor.CopyFrom(onnx.numpy_helper.from_array(half, tensor.name))
    assert precision_of(model) == "fp16"
    model.graph.node.add(op_type="DequantizeLinear")
    assert precision_of(model) == "int8"
