"""Which TensorRT is here, and what it would run on.

There are two libraries with one interface. TensorRT builds on the GPU it will run on, and times candidates there.
TensorRT-RTX builds without a GPU and leaves the last step, the machine code, to the moment an engine is first run.
"""

import functools
import importlib.metadata
from dataclasses import asdict, dataclass
from types import ModuleType
from typing import Any

from labkit import device as devices
from labkit.errors import Unavailable

RTX = "tensorrt-rtx"
MODULES = {"tensorrt": "tensorrt", "tensorrt_rtx": RTX, "tensorrt_rtx_bindings": RTX}
NO_GPU = "an engine file can still be built: `labkit build model.onnx`; the lesson shows recorded rows"
GPU_EXTRA = "on a machine with an NVIDIA GPU and the CUDA toolkit: .venv/bin/uv pip install -e '.[gpu]'"


@dataclass(frozen=True)
class Library:
    """An imported TensorRT: the module `trt`, its name ("tensorrt" or "tensorrt-rtx") and version."""

    trt: ModuleType
    name: str
    version: str

    @property
    def is_rtx(self):
        return self.name == RTX


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What an engine depends on beside its graph: another value of one of these, and it must be built again.

    gpu, compute_capability, driver  of the machine it was built on; None where there is no GPU
    """

    library: str
    library_version: str
    gpu: str | None
    compute_capability: str | None  # such as "8.9"
    driver: str | None

    def asdict(self):
        return asdict(self)


def library():
    """The TensorRT to use: the full one on a machine with a GPU, else TensorRT-RTX; Unavailable when there is none."""
    order = MODULES if "cuda" in devices.kinds() else reversed(MODULES)
    reasons = {}
    for module in order:
        try:
            return imported(module)
        except (ImportError, OSError, RuntimeError) as error:  # not installed, or its libraries do not load
            reasons[module] = str(error) or type(error).__name__
    raise Unavailable(
        "TensorRT is not here.",
        expected="the package tensorrt (needs a GPU) or tensorrt-rtx-cu13-bindings (Linux on x86-64)",
        found="; ".join(f"{module}: {reason}" for module, reason in reasons.items()),
        fix=GPU_EXTRA,
    )


def imported(module):
    """The `Library` of one module's name."""
    trt = __import__(module)
    return Library(trt, MODULES[module], trt.__version__)


def facts(found):
    """The `Facts` of a library on this machine."""
    machine = devices.describe()
    return Facts(
        library=found.name,
        library_version=found.version,
        gpu=machine.gpu,
        compute_capability=devices.compute_capability(),
        driver=machine.gpu_driver,
    )


def require_gpu(found):
    """Raise Unavailable, with the reason, unless engines of this library can run here."""
    capability = devices.compute_capability()
    if capability is None:
        raise Unavailable(
            "TensorRT cannot run an engine here.",
            expected="an NVIDIA GPU with its driver",
            found="no GPU that torch can use",
            fix=NO_GPU,
        )
    target = f"SM{capability.replace('.', '')}"
    if found.is_rtx and not hasattr(found.trt.ComputeCapability, target):
        known = [name for name in found.trt.ComputeCapability.__members__ if name.startswith("SM")]
        raise Unavailable(
            f"TensorRT-RTX has no kernels for this GPU ({target}).",
            expected=", ".join(known),
            found=target,
            fix=f"install the full library, {GPU_EXTRA}",
        )


@functools.cache
def recorder(trt):
    """A logger class of this library that keeps every message: [(severity name, text)]."""

    class Recorder(trt.ILogger):
        def __init__(self):
            trt.ILogger.__init__(self)
            self.messages: list[tuple[str, Any]] = []

        def log(self, severity, message):
            self.messages.append((severity.name, message))

        def said(self, *severities):
            """The texts of these severities, in order."""
            return [text for severity, text in self.messages if severity in severities]

    return Recorder


def pycuda_version():
    """The version of pycuda, or None when it is not installed."""
    try:
        return importlib.metadata.version("pycuda")
    except importlib.metadata.PackageNotFoundError:
        return None
