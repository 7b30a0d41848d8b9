"""Pick a device, wait for its work, and say what the device is and can do.

Lessons and measurements ask this module, so their code is the same on a CPU and on a GPU.
"""

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
    """Return the kinds of device usable here, best first: ("cuda", "cpu") or ("cpu",)."""
    import torch

    return ("cuda", "cpu") if torch.cuda.is_available() else ("cpu",)


def pick(prefer: str | None = None) -> "torch.device":
    """Return the device to run on.

    prefer  name of a device, such as "cuda:1"; None: the best one here
    Raises  Unavailable where `prefer` is not usable here
    """
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
    """Wait until the device has finished all its work; on a CPU return at once."""
    waiter(device)()


def waiter(device):
    """Return a function without arguments that waits until this device has finished its work.

    Make the function before a clock starts: calling it costs less than calling `synchronize`.
    """
    import torch

    if not _is_cuda(device):
        return lambda: None
    return lambda: torch.cuda.synchronize(device)


def supports_events(device: "torch.device") -> bool:
    """Return whether the device has a clock of its own (CUDA events)."""
    return _is_cuda(device)


def runs_triton() -> bool:
    """Return whether there is a GPU that Triton compiles kernels for."""
    return "cuda" in kinds()


def collectives(rank: int, size: int) -> str:
    """Return the backend of torch.distributed for process `rank` of `size` processes.

    If there is a GPU for each process, the backend is NCCL for tensors on GPUs and gloo for tensors
    on the CPU, and GPU number `rank` becomes the current device. Otherwise the backend is gloo.
    """
    import torch

    if not torch.cuda.is_available() or torch.cuda.device_count() < size:
        return "gloo"
    torch.cuda.set_device(rank)
    return "cpu:gloo,cuda:nccl"


def selected(tensor):
    """Return a context manager under which kernels start on the GPU that holds this tensor.

    It matters on a machine with several GPUs, where another GPU may be the current one.
    """
    import torch

    return torch.cuda.device_of(tensor)


def reset_peak_memory(device):
    """Begin a new record of a GPU's peak memory; do nothing for a CPU."""
    import torch

    if _is_cuda(device):
        torch.cuda.reset_peak_memory_stats(device)


def peak_memory_bytes(device):
    """Return the peak of the bytes in torch's allocator on a GPU since `reset_peak_memory`.

    None for a CPU, where torch has no such counter.
    """
    import torch

    return torch.cuda.max_memory_allocated(device) if _is_cuda(device) else None


def event_maker(device):
    """Return a function () -> CUDA event that records times; None for a CPU."""
    import torch

    if not _is_cuda(device):
        return None
    return lambda: torch.cuda.Event(enable_timing=True)


def uuid(device):
    """Return the identifier that the driver gives to this GPU, as a text; None for a CPU."""
    import torch

    return str(torch.cuda.get_device_properties(device).uuid) if _is_cuda(device) else None


def cache_bytes(device: "torch.device") -> int:
    """Return the size of the device's last-level cache in bytes; 32 MiB where it is not known.

    For a CPU at most 128 MiB are returned, the cache of the largest desktop chips. A virtual
    machine reports the cache of a whole socket, 480 MiB for example, although its cores get only a
    part of it. There copying slows down beyond 32 MiB, and at no larger size.
    """
    import torch

    if _is_cuda(device):
        return torch.cuda.get_device_properties(device).L2_cache_size
    return min(last_level_cache_bytes() or 2**25, 2**27)


def free_bytes(device):
    """Return how many bytes of the device's memory are free now; for a CPU the machine's memory."""
    import psutil
    import torch

    if _is_cuda(device):
        free, _ = torch.cuda.mem_get_info(device)
        return free
    return psutil.virtual_memory().available


def is_out_of_memory(error):
    """Return whether an exception means that the memory of a device was too small."""
    import torch

    return isinstance(
        error, (MemoryError, torch.OutOfMemoryError)
    ) or "can't allocate memory" in str(error)


def rng_state(device):
    """Return the states of torch's random generators as {name: tensor}.

    The names are "cpu" and, for a GPU, also "cuda".
    """
    import torch

    state = {"cpu": torch.get_rng_state()}
    if _is_cuda(device):
        state["cuda"] = torch.cuda.get_rng_state(device)
    return state


def set_rng_state(device, state):
    """Set torch's random generators to the states that `rng_state` returned.

    state  {"cpu": tensor, "cuda": tensor}; the second may be missing
    """
    import torch

    torch.set_rng_state(state["cpu"])
    if _is_cuda(device) and "cuda" in state:
        torch.cuda.set_rng_state(state["cuda"], device)


def require_compiler(device: "torch.device") -> None:
    """Raise Unavailable where torch.compile cannot build kernels for this device.

    From then on two warnings of torch are silenced: that a CUDA toolkit is installed where no GPU
    is in use, and that TF32 is off.
    """
    from labkit.device import packages

    if not _is_cuda(device):
        packages.require_cpp()
    logging.getLogger("torch.utils.cpp_extension").addFilter(_is_news_on_a_cpu)
    # TF32 is left off on purpose: fp32 means fp32 here
    warnings.filterwarnings("ignore", "TensorFloat32 tensor cores")


def _is_news_on_a_cpu(record):
    """Filter log records: False for torch's message that it finds no CUDA runtime, else True."""
    return "No CUDA runtime is found" not in record.getMessage()


def threads() -> int:
    """Return the number of threads that torch's CPU operators use."""
    import torch

    return torch.get_num_threads()


@contextmanager
def using_threads(count: int) -> Iterator[None]:
    """Let torch's CPU operators use `count` threads in a `with` block."""
    import torch

    earlier_count = torch.get_num_threads()
    if count != earlier_count:  # setting it costs more than a small network takes
        torch.set_num_threads(count)
    try:
        yield
    finally:
        if count != earlier_count:
            torch.set_num_threads(earlier_count)


def pool(workers: int, name: str = "") -> ThreadPoolExecutor:
    """Return a pool of threads in which torch uses as many threads as in the caller.

    workers  number of threads in the pool
    name     beginning of the threads' names

    A new thread would otherwise run its first operator on all cores. The reason: OpenMP has a
    number of threads of its own for each thread, which begins at the number of cores. torch
    corrects it when `torch.get_num_threads` is first called in the thread. Convolutions and matrix
    products do not call that function. Therefore each thread of the pool calls it when it starts.
    """
    import torch

    return ThreadPoolExecutor(workers, name, initializer=torch.get_num_threads)


def compute_capability():
    """Return the compute capability of the first NVIDIA GPU, such as "8.9"; None without a GPU."""
    import torch

    if not torch.cuda.is_available():
        return None
    major, minor = torch.cuda.get_device_capability(0)
    return f"{major}.{minor}"


def adds_int8() -> bool:
    """Return whether this CPU can add products of 8-bit integers without overflow.

    Such instructions are, for example, those of VNNI.
    """
    return not set(INT8_FLAGS).isdisjoint(cpu_isa())


def multiplies_bf16(device: "torch.device | str") -> bool:
    """Return whether the device has instructions for products of bf16 numbers.

    Without them torch emulates such products, which is slow.
    """
    import torch

    if _is_cuda(device):
        return torch.cuda.is_bf16_supported(including_emulation=False)
    return not set(BF16_FLAGS).isdisjoint(cpu_isa())
