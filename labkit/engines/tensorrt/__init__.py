"""tensorrt: NVIDIA's compiler of ONNX graphs for its GPUs (TensorRT 10 and 11, and TensorRT-RTX).

In TensorRT's words an engine is a compiled network.

build      make an engine of an ONNX file; TensorRT-RTX can do this without a GPU
compared   compare the precisions in an engine with those that the graph asks for
obtain     return the engine of an ONNX file from the cache of this machine; build it if needed
run        run an engine on torch tensors, on CUDA streams
"""

from dataclasses import replace

from labkit import device as devices
from labkit import export
from labkit.device import packages
from labkit.engines.served import Served
from labkit.engines.tensorrt.builder import Settings, build
from labkit.engines.tensorrt.engine_file import obtain
from labkit.engines.tensorrt.layers import compared
from labkit.engines.tensorrt.libraries import gpu_extra, library, require_gpu

__all__ = ["Settings", "build", "compared", "library", "obtain", "require_gpu"]

RUNS = "onnx"
PRECISIONS = ("fp32", "bf16", "fp16", "int8", "fp8")
NEEDS = "cuda"
LARGEST_BATCH = 64


def check():
    """Yield what this engine needs, as `Check`s."""
    without = "no engine is built here, where there is no GPU"
    rtx = packages.check(
        "tensorrt-rtx-cu13-bindings",
        module="tensorrt_rtx_bindings",
        without=without,
        fix="Linux on x86-64 only",
    )
    runs = "; builds engines; running them takes an NVIDIA GPU" if rtx.ok else ""
    yield replace(rtx, name="tensorrt-rtx", detail=rtx.detail + runs)
    without = "TensorRT-RTX builds engines in its place" if rtx.ok else "no engine is built"
    without += "; no time of an engine and no tactics (the kernels that it tried) are seen here"
    yield packages.check(
        "tensorrt", without=without, fix=f"{gpu_extra()}; then `labkit gpu` measures its engines"
    )
    without = (
        "a rehearsal runs its calls without a GPU, with ONNX Runtime doing the "
        "sums; it shows no time"
    )
    yield packages.check("pycuda", module="pycuda.driver", without=without, fix=gpu_extra())


def load(path, example, *, precision, threads):
    """Load an ONNX file on the GPU; arguments and result are those of `labkit.engines.load`.

    The engine takes batches of 1 to `LARGEST_BATCH` items, or of the size of `example` if that is
    larger.
    """
    from labkit.engines.tensorrt.run import Session

    require_gpu(library())
    batch = len(example)
    engine = obtain(path, Settings(batch=(1, batch, max(batch, LARGEST_BATCH))))
    session = Session(engine.library, engine.plan)
    return served(session, path, devices.pick("cuda"), threads)


def served(session, path, device, threads):
    """Return the `Served` of a `run.Session`.

    Its outputs are in the order of the ONNX file; an engine may have them in another order.

    session  the `run.Session`
    path     the ONNX file
    device   the GPU
    threads  number to report as CPU threads
    """
    names = [output.name for output in export.checked(path).graph.output]

    def run_whole(*tensors):
        answers = session.run_whole(*(tensor.to(device) for tensor in tensors))
        return {name: answers[name] for name in names if name in answers}

    def run(*tensors):
        return next(iter(run_whole(*tensors).values()))

    return Served(device=str(device), threads=threads, run=run, run_whole=run_whole)
