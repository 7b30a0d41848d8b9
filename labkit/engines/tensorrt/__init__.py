"""tensorrt: NVIDIA's compiler of ONNX graphs for its GPUs (TensorRT 10 and 11, and TensorRT-RTX).

build      an ONNX file becomes an engine; TensorRT-RTX does it without a GPU
layers     what is in an engine: fused kernels and their types; `precision` holds that against what the graph asked for
trust      an engine file is a program: it is loaded only when it was built here, for this machine as it is
run        on torch tensors, with CUDA graphs and streams
classic    on GPU memory by pycuda; `rehearsal` is a stand-in for it where there is no GPU
"""

from labkit import device as devices
from labkit.engines.graphs import as_onnx
from labkit.engines.served import Served
from labkit.engines.tensorrt import trust
from labkit.engines.tensorrt.builder import Built, Settings, Source, build
from labkit.engines.tensorrt.libraries import facts, library, require_gpu
from labkit.engines.tensorrt.precision import compared, placed, requested
from labkit.engines.tensorrt.trust import Engine, Untrusted, obtain

__all__ = [
    "Built",
    "Engine",
    "Settings",
    "Source",
    "Untrusted",
    "build",
    "compared",
    "facts",
    "library",
    "load",
    "obtain",
    "placed",
    "requested",
    "require_gpu",
    "trust",
]

LARGEST_BATCH = 64


def load(model_or_onnx, example, *, precision, threads=None):
    """See `labkit.engines.load`. Batches of 1 to 64 are served, or to that of `example` if it is larger."""
    from labkit.engines.tensorrt.run import Session

    found = library()
    require_gpu(found)
    batch = len(example)
    settings = Settings(batches=((1, batch, max(batch, LARGEST_BATCH)),))
    with as_onnx(model_or_onnx, example, precision) as path:
        engine = obtain(path, settings)
    session = Session(found, engine.plan)
    device = devices.pick("cuda")

    def run(*tensors):
        return session(*(tensor.to(device) for tensor in tensors))

    return Served(
        engine="tensorrt",
        precision=precision,
        device=str(device),
        threads=threads or devices.threads(),
        inputs=shapes(session.inputs),
        outputs=shapes(session.outputs),
        details={"library": f"{found.name} {found.version}", "file_bytes": len(engine.plan), "how": engine.how},
        run=run,
    )


def shapes(ports):
    """{name: shape} of an engine's ports; what may vary is the batch."""
    return {each.name: tuple("batch" if size == -1 else size for size in each.shape) for each in ports}
