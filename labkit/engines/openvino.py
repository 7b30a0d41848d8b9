"""openvino: Intel's runtime for CPUs (it also runs on others), often the fastest there."""

import functools

import torch

from labkit.device import packages
from labkit.engines.served import Served
from labkit.errors import Unavailable

# Without a hint, OpenVINO computes fp32 models in bf16 where the CPU can; only rounding shows that.
HINTS = {"fp32": "f32", "int8": "f32", "bf16": "bf16", "fp16": "f16"}
RUNS = "onnx"
PRECISIONS = tuple(HINTS)
FROM_FP32 = ("bf16", "fp16")  # precisions in which OpenVINO itself runs a file of fp32


def check():
    """Yield what this engine needs, as `Check`s."""
    yield packages.check("openvino", without="rows of this engine have a reason and no number")


def load(path, example, *, precision, threads):
    """Load an ONNX file on the CPU; arguments and result are those of `labkit.engines.load`.

    For bf16 and fp16 the file is in fp32, and OpenVINO computes it in the small format.

    A model for any shape is slow in OpenVINO, which prepares every call anew. So the model is
    compiled for the shape of the example. When a batch of another shape comes, it is also compiled
    for any shape.
    """
    openvino = packages.imported("openvino")
    core = _only_core(openvino)
    capabilities = core.get_property("CPU", "OPTIMIZATION_CAPABILITIES")
    if precision.upper() not in capabilities:
        raise Unavailable(
            f"This CPU cannot compute {precision} in OpenVINO.",
            expected=precision.upper(),
            found=" ".join(capabilities),
            fix="choose fp32 or int8, or a CPU with AMX or AVX-512 instructions for it",
        )
    settings = {
        "INFERENCE_PRECISION_HINT": HINTS[precision],
        "INFERENCE_NUM_THREADS": threads,
        "NUM_STREAMS": 1,
        "PERFORMANCE_HINT": "LATENCY",
    }
    model = core.read_model(path)
    compile_it = functools.partial(core.compile_model, device_name="CPU", config=settings)
    shape = openvino.PartialShape(example.shape)
    if (
        len(model.inputs) > 1
        or not model.is_dynamic()
        or not model.inputs[0].partial_shape.compatible(shape)
    ):
        return _served(compile_it(model))
    fixed = model.clone()
    fixed.reshape(shape)
    return _served(compile_it(fixed), tuple(example.shape), lambda: compile_it(model))


@functools.cache
def _only_core(openvino):
    """Return the only OpenVINO Core of this process. It is never freed.

    Freeing it could kill the process. The CPU plugin gives the thread that makes the Core a new
    stack for signals. If another thread frees the Core, as a garbage collection may, that stack is
    unmapped but still in use. Then the next signal with a handler kills the process.
    """
    return openvino.Core()


def _served(compiled, only=None, for_any_shape=None):
    """Return the `Served` of a compiled model.

    Its `threads` is the number that OpenVINO reports, which may differ from the one asked for.

    compiled       the model as OpenVINO compiled it
    only           the only input shape that `compiled` takes; None: it takes any shape
    for_any_shape  function () -> the model, compiled for any shape. It is called when the first
                   batch of another shape than `only` comes
    """
    names = [port.any_name for port in compiled.inputs]
    request_of_shape = compiled.create_infer_request()

    @functools.cache
    def request_of_any_shape():
        return for_any_shape().create_infer_request()

    def infer(*batch):
        arrays = {name: tensor.cpu().numpy() for name, tensor in zip(names, batch, strict=True)}
        request = request_of_shape if only in (None, batch[0].shape) else request_of_any_shape()
        return request.infer(arrays, share_inputs=True)

    def run(*batch):
        return torch.from_numpy(infer(*batch)[0])

    def run_whole(*batch):
        results = infer(*batch).to_tuple()
        tensors = zip(compiled.outputs, map(torch.from_numpy, results), strict=True)
        # a port may have several names
        return {name: tensor for port, tensor in tensors for name in port.get_names()}

    threads = compiled.get_property("INFERENCE_NUM_THREADS")
    return Served(device="cpu", threads=threads, run=run, run_whole=run_whole)
