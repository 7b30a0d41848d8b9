"""Running engines: on tensors and on pycuda's memory, against a stand-in that computes; on a GPU
where there is one.
"""

import types

import numpy as np
import pytest
import torch
from engines import made_up_onnx as made_up

from labkit import engines
from labkit.engines.tensorrt import require_gpu, run
from labkit.engines.tensorrt.libraries import Library
from labkit.errors import LabError, Unavailable
from labkit.lesson.support import load_support

rehearsal = load_support("rehearsal")
Context, Misuse, Rehearsal = rehearsal.Context, rehearsal.Misuse, rehearsal.Rehearsal

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
CLASSIC_STEPS = [
    *(
        "set_input_shape",
        "mem_alloc",
        "mem_alloc",
        "memcpy_htod",
        "set_tensor_address",
        "set_tensor_address",
    ),
    *("execute_async_v3", "synchronize", "memcpy_dtoh"),
]


@pytest.fixture(scope="module")
def onnx_path(tmp_path_factory):
    return made_up.save(made_up.residual(), tmp_path_factory.mktemp("onnx"))


@pytest.fixture
def images():
    return np.random.default_rng(0).standard_normal((5, 3, 8, 8)).astype(np.float32)


@pytest.fixture
def wanted(onnx_path, images):
    """What ONNX's own reference implementation computes."""
    from onnx.reference import ReferenceEvaluator

    return ReferenceEvaluator(str(onnx_path)).run(None, {"input": images})[0]


def script(context, cuda, images):
    """The steps of the lesson's script: one batch through an execution context, in memory by
    hand.
    """
    context.set_input_shape("input", images.shape)
    logits = np.empty(tuple(context.get_tensor_shape("logits")), np.float32)
    device_input, device_logits = cuda.mem_alloc(images.nbytes), cuda.mem_alloc(logits.nbytes)
    stream = cuda.Stream()
    cuda.memcpy_htod(device_input, images)
    context.set_tensor_address("input", int(device_input))
    context.set_tensor_address("logits", int(device_logits))
    context.execute_async_v3(stream.handle)
    stream.synchronize()
    cuda.memcpy_dtoh(logits, device_logits)
    device_input.free()
    device_logits.free()
    return logits


def test_the_script_gives_the_networks_answers_in_rehearsal(onnx_path, images, wanted):
    gpu = Rehearsal()
    np.testing.assert_allclose(script(Context(gpu, onnx_path), gpu, images), wanted, atol=1e-4)
    assert gpu.steps == CLASSIC_STEPS
    assert gpu.memory == {}, "all device memory was freed"


class Host(Rehearsal):
    """A device whose memory is the CPU's, and whose queue does not wait: torch tensors on the
    CPU will do.
    """

    def checked_address(self, address, size):
        return address


class FakeContext(Context):
    """The stand-in context, with what only a real session asks."""

    def set_optimization_profile_async(self, index, stream):
        return index == 0

    def execute_async_v3(self, stream):
        super().execute_async_v3(stream)
        for _, work in self.device.queue:
            work()
        self.device.queue.clear()
        return True


class FakeEngine:
    num_io_tensors = 2

    def __init__(self, onnx_path):
        self.onnx_path, self.contexts = onnx_path, []

    def get_tensor_name(self, index):
        return ("input", "logits")[index]

    def get_tensor_shape(self, name):
        return (-1, 3, 8, 8) if name == "input" else (-1, 10)

    def get_tensor_dtype(self, name):
        return types.SimpleNamespace(name="FLOAT")

    def get_tensor_mode(self, name):
        return ("INPUT", "OUTPUT")[name == "logits"]

    def create_execution_context(self):
        self.contexts.append(FakeContext(Host(), self.onnx_path))
        return self.contexts[-1]


def fake_library(engine):
    """A library whose runtime answers any plan with this engine."""

    class ILogger:
        ERROR = types.SimpleNamespace(name="ERROR")

        def __init__(self):
            pass

    class Runtime:
        def __init__(self, log):
            self.log = log

        def deserialize_cuda_engine(self, plan):
            if engine is None:
                self.log.log(ILogger.ERROR, "the plan is for another GPU")
            return engine

    trt = types.ModuleType("fake_tensorrt")
    trt.ILogger, trt.Runtime, trt.TensorIOMode = (
        ILogger,
        Runtime,
        types.SimpleNamespace(INPUT="INPUT"),
    )
    return Library(trt, "tensorrt", "0.0")


@pytest.fixture
def on_fake_gpu(monkeypatch):
    monkeypatch.setattr(run, "require_gpu", lambda found: None)
    monkeypatch.setattr(run, "_stream_handle", lambda: 7)


def test_a_session_computes_on_the_memory_of_the_tensors(onnx_path, images, wanted, on_fake_gpu):
    session = run.Session(fake_library(FakeEngine(onnx_path)), b"plan")
    found = session(torch.from_numpy(images))
    np.testing.assert_allclose(found.numpy(), wanted, atol=1e-4)
    assert list(session.inputs) == ["input"]
    assert list(session.outputs.values()) == [torch.float32]


class TwoOutputsEngine(FakeEngine):
    """An engine that gives its logits twice."""

    num_io_tensors = 3

    def get_tensor_name(self, index):
        return ("input", "logits", "again")[index]

    def get_tensor_mode(self, name):
        return "INPUT" if name == "input" else "OUTPUT"

    def create_execution_context(self):
        context = super().create_execution_context()
        context.tensors["again"] = context.tensors["logits"]
        compute = context._compute

        def compute_twice(shape, addresses):
            compute(shape, {name: addresses[name] for name in ("input", "logits")})
            compute(shape, {"input": addresses["input"], "logits": addresses["again"]})

        context._compute = compute_twice
        return context


def test_all_outputs_of_a_session_can_be_had_by_name(onnx_path, images, wanted, on_fake_gpu):
    session = run.Session(fake_library(TwoOutputsEngine(onnx_path)), b"plan")
    outputs = session.run_whole(torch.from_numpy(images))
    assert list(outputs) == ["logits", "again"]
    for tensor in outputs.values():
        np.testing.assert_allclose(tensor.numpy(), wanted, atol=1e-4)
    np.testing.assert_allclose(session(torch.from_numpy(images)).numpy(), wanted, atol=1e-4)


def test_a_tensor_of_another_type_or_layout_is_converted_first(
    onnx_path, images, wanted, on_fake_gpu
):
    session = run.Session(fake_library(FakeEngine(onnx_path)), b"plan")
    odd = torch.from_numpy(images).double().to(memory_format=torch.channels_last)
    np.testing.assert_allclose(session(odd).numpy(), wanted, atol=1e-4)


def test_a_context_is_made_once_for_each_stream(onnx_path, images, on_fake_gpu, monkeypatch):
    engine = FakeEngine(onnx_path)
    session = run.Session(fake_library(engine), b"plan")
    for _ in range(3):
        session(torch.from_numpy(images))
    assert len(engine.contexts) == 1
    monkeypatch.setattr(run, "_stream_handle", lambda: 8)
    session(torch.from_numpy(images[:1]))
    assert len(engine.contexts) == 2


def test_a_wrong_shape_is_refused_before_the_call(onnx_path, on_fake_gpu):
    session = run.Session(fake_library(FakeEngine(onnx_path)), b"plan")
    with pytest.raises(LabError, match="refuses the shape"):
        session(torch.zeros(2, 3, 9, 9))


def test_a_plan_that_does_not_load_is_an_error_with_tensorrts_words(on_fake_gpu):
    with pytest.raises(LabError, match="the plan is for another GPU"):
        run.Session(fake_library(None), b"plan")


def test_the_rehearsal_keeps_results_back_until_the_stream_was_waited_for(
    onnx_path, images, wanted
):
    gpu = Rehearsal()
    context, outputs = Context(gpu, onnx_path), np.zeros((5, 10), np.float32)
    source, target, stream = (
        gpu.mem_alloc(images.nbytes),
        gpu.mem_alloc(outputs.nbytes),
        gpu.Stream(),
    )
    assert context.set_input_shape("input", images.shape)
    gpu.memcpy_htod(source, images)
    context.set_tensor_address("input", int(source))
    context.set_tensor_address("logits", int(target))
    context.execute_async_v3(stream.handle)
    gpu.memcpy_dtoh(outputs, target)
    assert (outputs < -1e6).all()
    stream.synchronize()
    gpu.memcpy_dtoh(outputs, target)
    np.testing.assert_allclose(outputs, wanted, atol=1e-4)


def test_the_call_of_older_scripts_waits_for_its_result(onnx_path, images, wanted):
    gpu = Rehearsal()
    context, outputs = Context(gpu, onnx_path), np.empty_like(wanted)
    source, target = gpu.to_device(images), gpu.mem_alloc(outputs.nbytes)
    with pytest.raises(Misuse, match="not complete"):
        context.execute_v2([int(source), int(target)])
    context.set_input_shape("input", images.shape)
    for bindings in ([source, target], [int(source)]):
        with pytest.raises(TypeError, match="execute_v2"):
            context.execute_v2(bindings)
    assert context.execute_v2([int(source), int(target)])
    gpu.memcpy_dtoh(outputs, target)
    np.testing.assert_allclose(outputs, wanted, atol=1e-4)


def test_the_rehearsal_refuses_what_would_crash_a_gpu_program(onnx_path, images):
    gpu = Rehearsal()
    context, small = Context(gpu, onnx_path), gpu.mem_alloc(4)
    with pytest.raises(Misuse, match="More bytes"):
        gpu.memcpy_htod(small, images)
    with pytest.raises(Misuse, match="illegal memory access"):
        gpu.memcpy_htod(12345, images)
    with pytest.raises(Misuse, match="not complete"):
        context.execute_async_v3(1)
    with pytest.raises(TypeError, match="int"):
        context.set_tensor_address("input", small)
    assert not context.set_input_shape("input", (1, 3, 9, 9))
    assert not context.set_input_shape("input", (65, 3, 8, 8))
    assert context.get_tensor_shape("logits")[0] == -1
    with pytest.raises(Misuse, match="No such profile"):
        context.engine.get_tensor_profile_shape("input", 1)


def test_two_calls_in_one_stream_keep_the_shape_and_the_addresses_that_each_was_given(
    onnx_path, images, wanted
):
    gpu = Rehearsal()
    context, stream, held = Context(gpu, onnx_path, (1, 2, 3)), gpu.Stream(), []
    assert context.engine.get_tensor_profile_shape("input", 0) == [
        (batch, 3, 8, 8) for batch in (1, 2, 3)
    ]
    assert not context.set_input_shape("input", images.shape) and context.refused == images.shape
    for part in (images[:3], images[3:]):
        assert context.set_input_shape("input", part.shape) and context.refused is None
        outputs = np.empty((len(part), 10), np.float32)
        source, target = gpu.to_device(part), gpu.mem_alloc(outputs.nbytes)
        context.set_tensor_address("input", int(source))
        context.set_tensor_address("logits", int(target))
        context.execute_async_v3(stream.handle)
        gpu.memcpy_dtoh_async(outputs, target, stream)
        held.append((outputs, source, target))
    stream.synchronize()
    np.testing.assert_allclose(np.concatenate([outputs for outputs, *_ in held]), wanted, atol=1e-4)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_the_engine_is_unavailable_with_the_reason(onnx_path):
    pytest.importorskip("tensorrt_rtx_bindings", exc_type=ImportError)
    with pytest.raises(Unavailable, match="cannot run an engine here") as caught:
        engines.load("tensorrt", onnx_path, torch.zeros(2, 3, 8, 8))
    assert "GPU" in caught.value.found and "labkit build" in caught.value.fix


def test_tensorrt_rtx_says_when_it_has_no_kernels_for_a_gpu(monkeypatch):
    trt = pytest.importorskip("tensorrt_rtx_bindings", exc_type=ImportError)
    monkeypatch.setattr("labkit.device.compute_capability", lambda: "9.0")
    with pytest.raises(Unavailable, match=r"SM90[\s\S]*SM89"):
        require_gpu(Library(trt, "tensorrt-rtx", trt.__version__))
    require_gpu(Library(trt, "tensorrt", "10.16"))  # the full library has them


@pytest.fixture
def session(onnx_path):
    from labkit.engines.tensorrt import library, obtain

    try:
        found = library()
        require_gpu(found)
        return run.Session(found, obtain(onnx_path).plan)
    except Unavailable as error:
        pytest.skip(str(error))


@needs_gpu
def test_on_a_gpu_a_session_gives_the_networks_answers(session, images, wanted):
    batch = torch.from_numpy(images).cuda()
    torch.testing.assert_close(session(batch).cpu().numpy(), wanted, atol=1e-2, rtol=1e-2)


@needs_gpu
def test_on_a_gpu_pycuda_gives_the_same(session, images, wanted):
    pytest.importorskip("pycuda.autoprimaryctx", exc_type=ImportError)  # torch's context
    cuda = pytest.importorskip("pycuda.driver")
    found = script(session.engine.create_execution_context(), cuda, images)
    np.testing.assert_allclose(found, wanted, atol=1e-2, rtol=1e-2)
