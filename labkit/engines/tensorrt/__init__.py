"""tensorrt: NVIDIA's compiler of ONNX graphs for its GPUs (TensorRT 10 and 11, and TensorRT-RTX).

build      an ONNX file becomes an engine; TensorRT-RTX does it without a GPU
compared   what is in an engine, held against what the graph asked for
obtain     an engine file is a program: it is loaded only when it was built here, for this machine as it is
run        on torch tensors, with CUDA graphs and streams
"""

from dataclasses import replace

from labkit import device as devices
from labkit.device import packages
from labkit.engines.served import Served
from labkit.engines.tensorrt.builder import Settings, build
from labkit.engines.tensorrt.layers import compared
from labkit.engines.tensorrt.libraries import gpu_extra, library, require_gpu
from labkit.engines.tensorrt.trust import obtain

__all__ = ["Settings", "build", "compared", "library", "obtain", "require_gpu"]

RUNS, PRECISIONS, NEEDS = "onnx", ("fp32", "bf16", "fp16", "int8", "fp8"), "cuda"
LARGEST_BATCH = 64


def check():
    """See `labkit.engines`."""
    without = "no engine is built here, where there is no GPU"
    rtx = packages.check(
        "tensorrt-rtx-cu13-bindings", module="tensorrt_rtx_bindings", without=without, fix="Linux on x86-64 only"
    )
    runs = "; builds engines; running them takes an NVIDIA GPU" if rtx.ok else ""
    yield replace(rtx, name="tensorrt-rtx", detail=rtx.detail + runs)
    yield packages.check("tensorrt", without="rows of this engine have a reason and no number", fix=gpu_extra())
    without = "the classic way is rehearsed without it"
    yield packages.check("pycuda", module="pycuda.driver", without=without, fix=gpu_extra())


def load(path, example, *, precision, threads):
    """See `labkit.engines.load`. Batches of 1 to 64 are served, or to that of `example` if it is larger."""
    from labkit.engines.tensorrt.run import Session

    found = library()
    require_gpu(found)
    batch = len(example)
    plan = obtain(path, Settings(batch=(1, batch, max(batch, LARGEST_BATCH)))).plan
    session, device = Session(found, plan), devices.pick("cuda")
    return Served(
        device=str(device), threads=threads, run=lambda *tensors: session(*(tensor.to(device) for tensor in tensors))
    )
