"""What this machine can and cannot do: one line each, with the reason and the fix."""

import importlib
import os
import shutil
import sys
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version

from labkit import device, ledger
from labkit.errors import LabError
from labkit.files import artifacts

GPU_EXTRA = "on a machine with an NVIDIA GPU and the CUDA toolkit: .venv/bin/uv pip install -e '.[gpu]'"
REINSTALL = "rm .venv/.ready && make .venv/.ready"
TRITON = "the Triton kernels need Linux and, to run at speed, an NVIDIA GPU"


@dataclass(frozen=True)
class Check:
    """One thing a lesson may want.

    name    what it is
    ok      whether it is here
    detail  what was found, or why it is missing
    needed  whether the course cannot run without it
    fix     what to do, when something can be done
    """

    name: str
    ok: bool
    detail: str
    needed: bool = False
    fix: str | None = None


def examine():
    """All checks, in the order a reader meets them. Takes a few seconds: the engines are really imported."""
    return [
        python(),
        ledger_writable(),
        *(installed(name, needed=True) for name in ("torch", "torchvision", "papermill", "jupyterlab", "ipywidgets")),
        cpu(),
        *cpu_types(),
        compiler(),
        gpu(),
        *deployment(),
        energy(),
        browser(),
        *data_sets(),
    ]


def python():
    fits = (3, 11) <= sys.version_info[:2] < (3, 14)
    found = f"{sys.version.split()[0]} at {sys.executable}"
    return Check("python", fits, found, needed=True, fix="use Python 3.11, 3.12 or 3.13: make PYTHON=python3.12 run")


def ledger_writable():
    try:
        ledger.add(device.describe())
    except LabError as error:
        return Check("ledger", False, error.what, needed=True, fix=error.fix)
    free_gib = shutil.disk_usage(artifacts()).free / 2**30
    return Check("ledger", True, f"writable, {free_gib:,.0f} GiB free", needed=True)


def installed(name, *, needed=False, fix=REINSTALL):
    """Whether a package is installed."""
    try:
        return Check(name, True, version(name), needed)
    except PackageNotFoundError:
        return Check(name, False, "not installed", needed, fix)


def deployment():
    """What the deployment lessons use, with what they do without it."""
    yield from (package(name, needed=True) for name in ("onnx", "onnxscript", "onnxruntime"))
    yield without(package("openvino"), "rows of this engine have a reason and no number")
    yield without(package("netron"), "graphs are shown as a table")
    yield without(tensorrt_rtx(), "no engine is built here, where there is no GPU")
    yield without(package("tensorrt", fix=GPU_EXTRA), "rows of this engine have a reason and no number")
    yield without(package("pycuda", module="pycuda.driver", fix=GPU_EXTRA), "the classic way is rehearsed without it")
    yield without(package("triton", fix=TRITON), "FastSwish runs in its other forms")
    yield without(installed("torchao"), "no quantization-aware training")  # importing it takes many seconds
    yield without(installed("onnxslim"), "one graph optimisation less")
    yield without(installed("nvidia-modelopt", fix="Linux only"), "no mixed precision written into ONNX files")


def without(check, meaning):
    """The check, saying what the lessons do where the thing is missing."""
    return check if check.ok else replace(check, detail=f"{check.detail}: {meaning}")


def package(name, *, module=None, needed=False, fix=REINSTALL):
    """Whether a package is installed and its module really imports: engines often need libraries beside themselves."""
    check = installed(name, needed=needed, fix=fix)
    if not check.ok:
        return check
    try:
        importlib.import_module(module or name)
    except Exception as error:  # a library may fail to load in its own way
        reason = str(error).splitlines()[0] if str(error) else "no reason given"
        detail = f"installed, but does not load: {type(error).__name__}: {reason}"
        return Check(name, False, detail, needed, fix)
    return check


def tensorrt_rtx():
    """TensorRT-RTX parses ONNX and builds engines without a GPU; running them takes one."""
    found = package("tensorrt-rtx-cu13-bindings", module="tensorrt_rtx_bindings", fix="Linux on x86-64 only")
    runs = "builds and runs engines" if has_nvidia() else "builds engines; running them takes an NVIDIA GPU"
    return Check("tensorrt-rtx", found.ok, f"{found.detail}; {runs}" if found.ok else found.detail, fix=found.fix)


def cpu():
    machine = device.describe()
    text = f"{machine.cpu}, {machine.logical_cores} usable cores, {machine.ram_bytes / 2**30:.0f} GiB of memory"
    return Check("cpu", True, f"{text}; {machine.cpu_isa or 'no known instruction sets'}", needed=True)


def cpu_types():
    """Whether the CPU has instructions for the small number formats."""
    flags = set(device.cpu_isa())
    formats = {
        "bf16 on the CPU": device.BF16_FLAGS,
        "int8 on the CPU": ("avx512_vnni", "avx_vnni", "amx_int8", "asimddp", "i8mm"),
    }
    for name, wanted in formats.items():
        found = [flag for flag in wanted if flag in flags]
        slow = f"none of {', '.join(wanted)}: it works, but slowly"
        yield Check(name, bool(found), ", ".join(found) or slow, fix="another CPU; the lessons say what it changes")


def compiler():
    found = shutil.which(os.environ.get("CXX", "g++")) or shutil.which("clang++") or shutil.which("cl")
    return Check(
        "C++ compiler",
        bool(found),
        found or "none found: torch.compile cannot build kernels for the CPU",
        fix="install g++ (Debian, Ubuntu: apt-get install g++; macOS: xcode-select --install)",
    )


def has_nvidia():
    return "cuda" in device.kinds()


def gpu():
    machine = device.describe()
    if machine.gpu is None:
        return Check("gpu", False, "none that torch can use: the lessons run on the CPU", fix="see the recorded rows")
    memory = f", {machine.gpu_memory_bytes / 2**30:.0f} GiB" if machine.gpu_memory_bytes else ""
    return Check("gpu", True, f"{machine.gpu}{memory}, driver {machine.gpu_driver or 'unknown'}")


def energy():
    """An energy counter, as `measure.energy` would find it."""
    from labkit.measure.energy import NOT_READABLE, energy_counter

    source, read = energy_counter(device.pick())
    if read:
        return Check("energy counter", True, source)
    reason, fix = NOT_READABLE[source]
    return Check("energy counter", False, f"{reason}: energy stays unknown, with this reason", fix=fix)


def browser():
    found = next(filter(None, map(shutil.which, ("chromium", "google-chrome", "chromium-browser"))), None)
    return Check(
        "chromium",
        bool(found),
        found or "not found: only the browser test needs it",
        fix="install chromium (Debian: apt-get install chromium)",
    )


def data_sets():
    from labkit.data import status

    for row in status():
        detail = f"{row.disk_bytes / 1e6:,.0f} MB" if row.present else "not here"
        yield Check(f"data: {row.name}", row.present, detail, needed=row.name == "fashion-mnist", fix=row.how)
