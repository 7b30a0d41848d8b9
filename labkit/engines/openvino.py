"""openvino: Intel's runtime for CPUs (it also runs on others), often the fastest there."""

import functools

import numpy as np
import torch

from labkit import device as devices
from labkit.engines.graphs import as_onnx
from labkit.engines.served import Served
from labkit.errors import Unavailable

# Left alone, it computes fp32 models in bf16 wherever the CPU can, and nobody would notice but for the rounding.
HINTS = {"fp32": "f32", "int8": "f32", "bf16": "bf16", "fp16": "f16"}
CAPABILITIES = {"fp32": "FP32", "int8": "INT8", "bf16": "BF16", "fp16": "FP16"}


def load(model_or_onnx, example, *, precision, threads=None):
    """See `labkit.engines.load`. It runs on the CPU. bf16 and fp16 are fp32 files computed in the small format."""
    core = only_core(imported())
    able = core.get_property("CPU", "OPTIMIZATION_CAPABILITIES")
    if CAPABILITIES[precision] not in able:
        raise Unavailable(
            f"This CPU cannot compute {precision} in OpenVINO.",
            expected=CAPABILITIES[precision],
            found=" ".join(able),
            fix="choose fp32 or int8, or a CPU with AMX or AVX-512 instructions for it",
        )
    threads = threads or devices.threads()
    settings = {
        "INFERENCE_PRECISION_HINT": HINTS[precision],
        "INFERENCE_NUM_THREADS": threads,
        "NUM_STREAMS": 1,
        "PERFORMANCE_HINT": "LATENCY",
    }
    with as_onnx(model_or_onnx, example, "int8" if precision == "int8" else "fp32") as path:
        compiled = core.compile_model(core.read_model(path), "CPU", settings)
    return served(compiled, precision)


def imported():
    try:
        import openvino
    except ImportError as error:
        raise Unavailable(
            "OpenVINO is not installed.",
            expected="the package openvino",
            found=str(error),
            fix=".venv/bin/pip install openvino",
        ) from error
    return openvino


@functools.cache
def only_core(openvino):
    """One Core until the process ends.

    Its CPU plugin gives the thread that makes it a new stack for signals. Let go in another thread (a garbage
    collection is enough), the stack is unmapped but stays in use, and the next signal with a handler kills the process.
    """
    return openvino.Core()


def served(compiled, precision):
    """Serve a compiled model; what it says of itself (threads, precision) is recorded, not what was asked for."""
    request, first = compiled.create_infer_request(), compiled.outputs[0]
    types = [np.dtype(port.element_type.to_dtype()) for port in compiled.inputs]

    def run(*batch):
        arrays = [np.ascontiguousarray(tensor.cpu().numpy(), kind) for tensor, kind in zip(batch, types, strict=True)]
        return torch.from_numpy(request.infer(arrays, share_inputs=True)[first])

    hint = compiled.get_property("INFERENCE_PRECISION_HINT").get_type_name()
    return Served(
        engine="openvino",
        precision=precision,
        device="cpu",
        threads=compiled.get_property("INFERENCE_NUM_THREADS"),
        inputs={port.any_name: shape(port) for port in compiled.inputs},
        outputs={port.any_name: shape(port) for port in compiled.outputs},
        details={
            "devices": " ".join(compiled.get_property("EXECUTION_DEVICES")),
            "precision_hint": hint,
            "streams": compiled.get_property("NUM_STREAMS"),
        },
        run=run,
    )


def shape(port):
    """A port's shape; what may vary is called batch when it stands first."""
    sizes = enumerate(port.partial_shape)
    return tuple(size.get_length() if size.is_static else ("batch" if place == 0 else "?") for place, size in sizes)
