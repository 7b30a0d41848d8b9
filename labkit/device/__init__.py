"""The only module that knows the words cuda and cpu: pick a device, wait for it, ask what it is."""

import logging
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING

from labkit.device.cgroups import Quota, quota  # noqa: F401
from labkit.device.machine import (  # noqa: F401
    BF16_FLAGS,
    INT8_FLAGS,
    allowed_cores,
    commit,
    cpu_isa,
    describe,
    fits_socket,
    last_level_cache_bytes,
    usable_cores,
)
from labkit.errors import Unavailable

if TYPE_CHECKING:
    import torch


def kinds():
    """Return the kinds of device usable here, best first, such as ("cuda", "cpu")."""
    import torch

    return ("cuda", "cpu") if torch.cuda.is_available() else ("cpu",)


def pick(prefer: str | None = None) -> "torch.device":
    """Return the device to run on, a `torch.device`: `prefer`, or the best there is."""
    import torch

    name = prefer or kinds()[0]
    if kind(name) not in kinds():
        raise Unavailable(
            f"The device {name!r} is not usable here.",
            expected=" or ".join(kinds()),
            found=str(name),
            fix="choose one that is, or run `labkit doctor` to see what is missing",
        )
    return torch.device(name)


def kind(device: "torch.device | str") -> str:
    """Return "cpu" or "cuda" for a device or its name, such as "cuda:1"."""
    return str(device).split(":")[0]


def _is_cuda(device):
    return kind(device) == "cuda"


def synchronize(device: "torch.device") -> None:
    """Wait until the device has done everything asked of it; on a CPU there is nothing to wait
    for.
    """
    waiter(device)()


def waiter(device):
    """Return `synchronize` for one device as a function without arguments, cheap enough to stand
    inside a stopwatch.
    """
    import torch

    if not _is_cuda(device):
        return lambda: None
    return lambda: torch.cuda.synchronize(device)


def supports_events(device: "torch.device") -> bool:
    """Return True when the device keeps its own clock (CUDA events)."""
    return _is_cuda(device)


def runs_triton() -> bool:
    """Return True when there is a GPU that Triton compiles kernels for."""
    return "cuda" in kinds()


def collectives(rank: int, size: int) -> str:
    """Return the backend of torch.distributed for process `rank` of `size`: with NCCL if each
    can have its own GPU.
    """
    import torch

    if not torch.cuda.is_available() or torch.cuda.device_count() < size:
        return "gloo"
    torch.cuda.set_device(rank)
    return "cpu:gloo,cuda:nccl"


def selected(tensor):
    """Return a context in which kernels start where this tensor lies, on a machine with several
    GPUs.
    """
    import torch

    return torch.cuda.device_of(tensor)


def reset_peak_memory(device):
    """Start a new peak-memory window on a GPU; nothing to do elsewhere."""
    import torch

    if _is_cuda(device):
        torch.cuda.reset_peak_memory_stats(device)


def peak_memory_bytes(device):
    """Return the most bytes that the GPU's allocator held since the last reset; None where there
    is no such counter.
    """
    import torch

    return torch.cuda.max_memory_allocated(device) if _is_cuda(device) else None


def event_maker(device):
    """Return a maker of timing marks on the device's own clock (CUDA events), or None where
    there is no such clock.
    """
    import torch

    if not _is_cuda(device):
        return None
    return lambda: torch.cuda.Event(enable_timing=True)


def uuid(device):
    """Return the driver's name for this GPU, or None for any other device."""
    import torch

    return str(torch.cuda.get_device_properties(device).uuid) if _is_cuda(device) else None


def cache_bytes(device: "torch.device") -> int:
    """Return the bytes of the device's last-level cache; 32 MiB where they are not known.

    A CPU's is counted up to 128 MiB, what the largest desktop chips have. A virtual machine names
    the cache of its whole socket (480 MiB, say), and its cores get a part: there copying slows down
    beyond 32 MiB and at no larger size.
    """
    import torch

    if _is_cuda(device):
        return torch.cuda.get_device_properties(device).L2_cache_size
    return min(last_level_cache_bytes() or 2**25, 2**27)


def free_bytes(device):
    """Return the bytes of memory that could be used now."""
    import psutil
    import torch

    if _is_cuda(device):
        free, _ = torch.cuda.mem_get_info(device)
        return free
    return psutil.virtual_memory().available


def is_out_of_memory(error):
    """Return True when an error of torch means that the memory of a device did not suffice."""
    import torch

    return isinstance(
        error, (MemoryError, torch.OutOfMemoryError)
    ) or "can't allocate memory" in str(error)


def rng_state(device):
    """Return the state of torch's random numbers, of the CPU and of this device: {kind: tensor}."""
    import torch

    state = {"cpu": torch.get_rng_state()}
    if _is_cuda(device):
        state["cuda"] = torch.cuda.get_rng_state(device)
    return state


def set_rng_state(device, state):
    """Go on with the random numbers of an earlier `rng_state`."""
    import torch

    torch.set_rng_state(state["cpu"])
    if _is_cuda(device) and "cuda" in state:
        torch.cuda.set_rng_state(state["cuda"], device)


def require_compiler(device: "torch.device") -> None:
    """Raise Unavailable where torch.compile cannot build kernels for this device."""
    from labkit.device import packages

    if not _is_cuda(device):
        packages.require_cpp()
    logging.getLogger("torch.utils.cpp_extension").addFilter(_is_news_on_a_cpu)
    # not enabled on purpose: fp32 means fp32 here
    warnings.filterwarnings("ignore", "TensorFloat32 tensor cores")


def _is_news_on_a_cpu(record):
    """Return False for torch's warning, at the first compilation, that a CUDA toolkit is here
    but no GPU is in use.
    """
    return "No CUDA runtime is found" not in record.getMessage()


def threads() -> int:
    """Return the number of threads that torch's CPU operators use."""
    import torch

    return torch.get_num_threads()


@contextmanager
def using_threads(count: int | None) -> Iterator[None]:
    """Let torch's CPU operators use so many threads within the context."""
    import torch

    before = torch.get_num_threads()
    if count != before:  # setting it costs more than a small network takes
        torch.set_num_threads(count)
    try:
        yield
    finally:
        if count != before:
            torch.set_num_threads(before)


def pool(workers: int, name: str = "") -> ThreadPoolExecutor:
    """Return a pool of threads in which torch uses as many threads as the caller told it to.

    OpenMP keeps this number for each thread, and begins with all cores. In a new thread torch sets
    it at its first question for it; a convolution or a product does not ask, and one that comes
    first would run on all cores.
    """
    import torch

    return ThreadPoolExecutor(workers, name, initializer=torch.get_num_threads)


def compute_capability():
    """Return the generation of the first NVIDIA GPU, such as "8.9", or None when there is none."""
    import torch

    if not torch.cuda.is_available():
        return None
    major, minor = torch.cuda.get_device_capability(0)
    return f"{major}.{minor}"


def adds_int8() -> bool:
    """Return True when this CPU adds products of 8-bit integers without overflow (VNNI, and its
    like on ARM).
    """
    return not set(INT8_FLAGS).isdisjoint(cpu_isa())


def multiplies_bf16(device: "torch.device | str") -> bool:
    """Return True when the device has instructions for products of bf16 numbers; without them
    torch imitates them.
    """
    import torch

    if _is_cuda(device):
        return torch.cuda.is_bf16_supported(including_emulation=False)
    return not set(BF16_FLAGS).isdisjoint(cpu_isa())
