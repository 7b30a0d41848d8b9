"""The classic way to call an engine: GPU memory by hand, with pycuda. Each step of a call is one line.

torch does all of this by itself (`run.py`); a program without torch, or in C++, does it as here.
"""

import numpy as np

from labkit.engines.tensorrt.libraries import GPU_EXTRA
from labkit.errors import Unavailable


def driver():
    """pycuda's driver interface, in the context that torch and TensorRT use; Unavailable, with the reason.

    `pycuda.autoinit`, which older scripts import, would make a context of its own beside theirs.
    """
    try:
        import pycuda.driver as cuda
    except ImportError as error:  # not installed, or "libcuda.so.1: cannot open shared object file": no driver
        raise unusable(error) from error
    try:
        import pycuda.autoprimaryctx  # noqa: F401 (importing it makes the context current)
    except (cuda.Error, RuntimeError) as error:
        raise unusable(error) from error
    return cuda


def unusable(error):
    return Unavailable(
        "pycuda is not usable here.",
        expected="the package pycuda, and an NVIDIA GPU with its driver (libcuda.so.1)",
        found=f"{type(error).__name__}: {error}",
        fix=GPU_EXTRA,
    )


def infer(context, cuda, images, *, names=("input", "logits")):
    """Run one batch through an execution context.

    context  of an engine with float32 inputs and outputs: `run.Session(...).engine.create_execution_context()`
    cuda     pycuda's driver module: `driver()`
    images   (N, C, H, W) in the CPU's memory
    names    of the engine's input and output
    returns  (N, classes) float32 in the CPU's memory
    """
    source, target = names
    images = np.ascontiguousarray(images, np.float32)
    context.set_input_shape(source, images.shape)
    outputs = np.empty(tuple(context.get_tensor_shape(target)), np.float32)
    device_input, device_output = cuda.mem_alloc(images.nbytes), cuda.mem_alloc(outputs.nbytes)
    stream = cuda.Stream()
    try:
        cuda.memcpy_htod(device_input, images)
        context.set_tensor_address(source, int(device_input))
        context.set_tensor_address(target, int(device_output))
        context.execute_async_v3(stream.handle)
        stream.synchronize()
        cuda.memcpy_dtoh(outputs, device_output)
    finally:
        device_input.free()
        device_output.free()
    return outputs
