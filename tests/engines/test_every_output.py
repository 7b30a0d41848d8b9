"""Of a network of two outputs only the second is wrong: no engine gets a time for it."""

import copy
import types

import numpy as np
import pytest
import torch
from made_up_onnx import FLOAT, initializer, model, save
from onnx import helper

from labkit import engines
from labkit.engines import _disagreement, fidelity
from labkit.engines.bench import bench
from labkit.engines.opening import Opened, opened
from labkit.engines.racing import race
from labkit.engines.tensorrt import run as tensorrt_run
from labkit.errors import MeasureError
from labkit.measure import Plan

PLAN = Plan(seconds=0.05)
TORCH_ENGINES = ("eager", "inductor", "aotinductor")


@pytest.fixture(autouse=True)
def nothing_remembered(monkeypatch):
    monkeypatch.setattr(_disagreement, "_verdicts", {})


class TwoHeads(torch.nn.Module):
    """A class and an angle of an image."""

    def __init__(self):
        super().__init__()
        self.classes = torch.nn.Linear(12, 3)
        self.angle = torch.nn.Linear(12, 2)

    def forward(self, images):
        flat = images.flatten(1)
        return {"classes": self.classes(flat), "angle": self.angle(flat)}


def two_heads():
    torch.manual_seed(0)
    images = torch.randn(2, 3, 2, 2)
    return Opened("two heads", TwoHeads(), "fp32", inputs=lambda batch: (images,))


def wrong_in(monkeypatch, output, engine):
    """Let one engine run a network whose head of this name has other weights."""
    module = engines.get(engine)
    load = module.load

    def load_other(network, *rest, **settings):
        other = copy.deepcopy(network)
        getattr(other, output).weight.data *= 1.05
        return load(other, *rest, **settings)

    monkeypatch.setattr(module, "load", load_other)


@pytest.mark.slow
@pytest.mark.parametrize("engine", TORCH_ENGINES)
def test_an_engine_of_torch_gives_all_outputs_of_a_module_and_the_first_as_its_answer(engine):
    network = two_heads()
    (images,) = network.inputs(2)
    served = engines.load(engine, network.model, images)
    right = network.model(images)
    torch.testing.assert_close(served(images), right["classes"])
    torch.testing.assert_close(served.all_outputs(images), right)
    (row,) = bench(network, [2], engine=engine, plan=PLAN)
    assert row.p50_ms > 0
    assert row.unchecked is None


@pytest.mark.slow
@pytest.mark.parametrize("output", ["classes", "angle"])
@pytest.mark.parametrize("engine", TORCH_ENGINES)
def test_an_engine_of_torch_that_is_wrong_in_one_output_gets_no_time(engine, output, monkeypatch):
    wrong_in(monkeypatch, output, engine)
    (row,) = bench(two_heads(), [2], engine=engine, plan=PLAN)
    assert row.p50_ms is None
    assert (
        f"something else than the torch module: {row_db(row):.1f} dB in the output '{output}'"
        in (row.reason)
    )
    monkeypatch.setattr(_disagreement, "_verdicts", {})
    network = two_heads()
    with pytest.raises(MeasureError, match=f"{engine} is not timed(?s:.*)'{output}'"):
        list(race([(network, engine), (network, engine)], [2], plan=PLAN))


def row_db(row):
    """The decibels of the reason: 5 % of the power of the weights are 26 dB."""
    db = float(row.reason.split(" dB")[0].split()[-1])
    assert 15 < db < 35
    return db


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["onnxruntime", "openvino"])
def test_an_engine_of_files_that_is_given_a_module_is_compared_in_each_of_its_outputs(
    engine, monkeypatch
):
    network = two_heads()
    (row,) = bench(network, [2], engine=engine, plan=PLAN)
    assert row.p50_ms > 0
    assert row.unchecked is None
    load = engines.load

    def wrong(*args, **settings):
        served = load(*args, **settings)

        def run_whole(*batch):
            answers = served.run_whole(*batch)
            return {name: answers[name] * (1 + 0.05 * (name != "logits")) for name in answers}

        return engines.replace(served, run_whole=run_whole)

    monkeypatch.setattr(engines, "load", wrong)
    (row,) = bench(network, [2], engine=engine, plan=PLAN)
    assert row.p50_ms is None
    assert "in the output 'angle'" in row.reason


def test_outputs_that_an_engine_does_not_give_are_named_beside_its_time(monkeypatch):
    module = engines.get("eager")
    load = module.load
    monkeypatch.setattr(
        module, "load", lambda *args, **more: engines.replace(load(*args, **more), run_whole=None)
    )
    (row,) = bench(two_heads(), [2], engine="eager", plan=PLAN)
    assert row.p50_ms > 0
    assert "eager does not give the output 'angle'" in row.unchecked


def test_a_module_whose_answers_do_not_vary_gets_no_time():
    network = two_heads()
    for head in (network.model.classes, network.model.angle):
        head.weight.data.zero_()
    (row,) = bench(network, [2], engine="eager", plan=PLAN)
    assert row.p50_ms is None
    assert "the outputs 'classes', 'angle'" in row.reason


# TensorRT: a stand-in for its API, whose engine computes the first output right and not the second.


def file_of_two(folder):
    nodes = [
        helper.make_node("Conv", ["input", "w"], ["logits"], name="classes"),
        helper.make_node("Conv", ["input", "v"], ["angle"], name="angle"),
    ]
    weights = [initializer("w", 3, 3, 3, 3), initializer("v", 2, 3, 3, 3, seed=1)]
    made = model(nodes, weights, output=("batch", 3, 6, 6))
    made.graph.output.append(helper.make_tensor_value_info("angle", FLOAT, ("batch", 2, 6, 6)))
    return save(made, folder)


class Context:
    """An execution context that computes with ONNX Runtime, into the memory that it is given."""

    def __init__(self, path, factors):
        self.session = engines.get("onnxruntime").export.session(path, "none")
        self.factors = factors
        self.addresses = {}
        self.shapes = {}

    def set_input_shape(self, name, shape):
        self.shapes[name] = shape
        return True

    def set_tensor_address(self, name, address):
        self.addresses[name] = address

    def get_tensor_shape(self, name):
        images = np.zeros(self.shapes["input"], np.float32)
        return self.session.run([name], {"input": images})[0].shape

    def set_optimization_profile_async(self, number, stream):
        return True

    def execute_async_v3(self, stream):
        images = self._memory("input", self.shapes["input"])
        for name, factor in self.factors.items():
            self._memory(name, self.get_tensor_shape(name))[:] = (
                factor * self.session.run([name], {"input": images})[0]
            )
        return True

    def _memory(self, name, shape):
        import ctypes

        count = int(np.prod(shape))
        pointer = ctypes.cast(self.addresses[name], ctypes.POINTER(ctypes.c_float))
        return np.ctypeslib.as_array(pointer, (count,)).reshape(shape)


def session(path, factors, monkeypatch):
    """A `Session` on a stand-in of TensorRT, whose outputs are the right ones times a factor."""
    kinds = {"input": "INPUT", **dict.fromkeys(factors, "OUTPUT")}
    names = list(kinds)
    engine = types.SimpleNamespace(
        num_io_tensors=len(names),
        get_tensor_name=names.__getitem__,
        get_tensor_dtype=lambda name: types.SimpleNamespace(name="FLOAT"),
        get_tensor_mode=kinds.__getitem__,
        create_execution_context=lambda: Context(path, factors),
    )
    runtime = types.SimpleNamespace(deserialize_cuda_engine=lambda plan: engine)
    trt = types.SimpleNamespace(
        TensorIOMode=types.SimpleNamespace(INPUT="INPUT"), Runtime=lambda log: runtime
    )
    monkeypatch.setattr(tensorrt_run, "require_gpu", lambda library: None)
    monkeypatch.setattr(tensorrt_run, "recorder", lambda trt: types.SimpleNamespace)
    monkeypatch.setattr(tensorrt_run, "_stream_handle", lambda: 0)
    return tensorrt_run.Session(types.SimpleNamespace(trt=trt), b"")


@pytest.mark.parametrize("order", [("logits", "angle"), ("angle", "logits")])
@pytest.mark.parametrize("wrong", [None, "logits", "angle"])
def test_tensorrt_is_compared_in_each_output_in_whatever_order_its_engine_has_them(
    wrong, order, tmp_path, monkeypatch
):
    path = file_of_two(tmp_path)
    factors = {name: 1.05 if name == wrong else 1.0 for name in order}
    tensorrt = engines.get("tensorrt")

    def load(path, example, *, precision, threads):
        return tensorrt.served(
            session(path, factors, monkeypatch), path, torch.device("cpu"), threads
        )

    monkeypatch.setattr(tensorrt, "load", load)
    (row,) = bench(opened(str(path)), [2], engine="tensorrt", plan=PLAN)
    if wrong is None:
        assert row.p50_ms > 0, row.reason
        assert row.unchecked is None
    else:
        assert row.p50_ms is None
        assert f"in the output '{wrong}'" in row.reason


def test_the_comparison_of_a_quantized_file_has_every_output_of_an_engine(tmp_path, monkeypatch):
    path = file_of_two(tmp_path)
    module = engines.get("onnxruntime")
    load = module.load

    def wrong(*args, **settings):
        served = load(*args, **settings)

        def run_whole(*batch):
            answers = served.run_whole(*batch)
            return {**answers, "angle": answers["angle"] * 1.05}

        return engines.replace(served, run_whole=run_whole)

    monkeypatch.setattr(module, "load", wrong)
    images = np.random.default_rng(0).normal(size=(40, 3, 8, 8)).astype(np.float32)
    *_, (name, alike, as_meant) = fidelity.quantized(path, path, images, names=("onnxruntime",))
    assert name == "onnxruntime"
    for fidelity_ in (alike, as_meant):
        assert fidelity_.db > 100
        assert 25 < fidelity_.further["angle"].db < 27
        assert fidelity_.lowest_db < 27
