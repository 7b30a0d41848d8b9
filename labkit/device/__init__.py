"""Devices: the only module that knows the words cuda and cpu.

It picks a device, waits for its work, and says what the device is and can do.
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
    """Return a function without arguments that waits for this device, as `synchronize` does.

    The function is quick enough to be called while a clock runs.
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

    The backend is NCCL where each process can have its own GPU, which is then selected; else gloo.
    """
    import torch

    if not torch.cuda.is_available() or torch.cuda.device_count() < size:
        return "gloo"
    torch.cuda.set_device(rank)
    return "cpu:gloo,cuda:nccl"


def selected(tensor):
    """Return a context in which kernels start on the GPU that holds this tensor.

    The context matters on a machine with several GPUs.
    """
    import torch

    return torch.cuda.device_of(tensor)


def reset_peak_memory(device):
    """Set a GPU's record of its peak memory back to the present; on a CPU do nothing."""
    import torch

    if _is_cuda(device):
        torch.cuda.reset_peak_memory_stats(device)


def peak_memory_bytes(device):
    """Return the most bytes that torch's allocator held on a GPU since `reset_peak_memory`.

    None on a CPU, where torch has no such counter.
    """
    import torch

    return torch.cuda.max_memory_allocated(device) if _is_cuda(device) else None


def event_maker(device):
    """Return a function that makes a CUDA event; None for a device without its own clock."""
    import torch

    if not _is_cuda(device):
        return None
    return lambda: torch.cuda.Event(enable_timing=True)


def uuid(device):
    """Return the identifier that the driver gives to this GPU; None for a CPU."""
    import torch

    return str(torch.cuda.get_device_properties(device).uuid) if _is_cuda(device) else None


def cache_bytes(device: "torch.device") -> int:
    """Return the bytes of the device's last-level cache; 32 MiB where they are not known.

    A CPU's cache counts up to 128 MiB, as much as the largest desktop chips have. A virtual machine
    reports the cache of its whole socket (480 MiB, say), while its cores get a part: copying there
    slows down beyond 32 MiB and at no larger size.
    """
    import torch

    if _is_cuda(device):
        return torch.cuda.get_device_properties(device).L2_cache_size
    return min(last_level_cache_bytes() or 2**25, 2**27)


def free_bytes(device):
    """Return the bytes of the device's memory that are free now."""
    import psutil
    import torch

    if _is_cuda(device):
        free, _ = torch.cuda.mem_get_info(device)
        return free
    return psutil.virtual_memory().available


def is_out_of_memory(error):
    """Return whether an error of torch means that the memory of a device did not suffice."""
    import torch

    return isinstance(
        error, (MemoryError, torch.OutOfMemoryError)
    ) or "can't allocate memory" in str(error)


def rng_state(device):
    """Return the state of torch's random numbers: {"cpu": tensor}, on a GPU "cuda" as well."""
    import torch

    state = {"cpu": torch.get_rng_state()}
    if _is_cuda(device):
        state["cuda"] = torch.cuda.get_rng_state(device)
    return state


def set_rng_state(device, state):
    """Set the state of torch's random numbers to one that `rng_state` returned."""
    import torch

    torch.set_rng_state(state["cpu"])
    if _is_cuda(device) and "cuda" in state:
        torch.cuda.set_rng_state(state["cuda"], device)


def require_compiler(device: "torch.device") -> None:
    """Raise Unavailable where torch.compile cannot build kernels for this device.

    Two warnings of torch that say nothing new are silenced.
    """
    from labkit.device import packages

    if not _is_cuda(device):
        packages.require_cpp()
    logging.getLogger("torch.utils.cpp_extension").addFilter(_is_news_on_a_cpu)
    # TF32 is left off on purpose: fp32 means fp32 here
    warnings.filterwarnings("ignore", "TensorFloat32 tensor cores")


def _is_news_on_a_cpu(record):
    """Return False for torch's warning that a CUDA toolkit is installed but no GPU is in use."""
    return "No CUDA runtime is found" not in record.getMessage()


def threads() -> int:
    """Return the number of threads that torch's CPU operators use."""
    import torch

    return torch.get_num_threads()


@contextmanager
def using_threads(count: int | None) -> Iterator[None]:
    """Let torch's CPU operators use `count` threads within the context."""
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

    OpenMP stores its number of threads separately for each thread, and starts with all cores. In a
    new thread torch corrects this number at the first question for it. Convolutions and matrix
    products do not ask: as the first operator of a thread, they would run on all cores. Therefore
    each thread of the pool asks when it starts.
    """
    import torch

    return ThreadPoolExecutor(workers, name, initializer=torch.get_num_threads)


def compute_capability():
    """Return the generation of the first NVIDIA GPU, such as "8.9"; None without a GPU."""
    import torch

    if not torch.cuda.is_available():
        return None
    major, minor = torch.cuda.get_device_capability(0)
    return f"{major}.{minor}"


def adds_int8() -> bool:
    """Return whether this CPU adds products of 8-bit integers without overflow (as VNNI does)."""
    return not set(INT8_FLAGS).isdisjoint(cpu_isa())


def multiplies_bf16(device: "torch.device | str") -> bool:
    """Return whether the device has instructions for products of bf16 numbers.

    Without them torch emulates such products, which is slow.
    """
    import torch

    if _is_cuda(device):
        return torch.cuda.is_bf16_supported(including_emulation=False)
    return not set(BF16_FLAGS).isdisjoint(cpu_isa())
