"""Describe the machine that numbers are measured on, and find the git commit of the workbook."""

import functools
import json
import math
import os
import platform
import subprocess
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from labkit.device.cgroups import quota
from labkit.files import root, short_digest

# The instruction sets that decide how fast a CPU is at fp32, bf16 and int8.
ISA_FLAGS = (
    *("avx2", "fma", "avx512f", "avx512_vnni", "avx512_bf16", "avx512_fp16", "avx_vnni"),
    *("amx_tile", "amx_bf16", "amx_int8"),
    *("asimd", "asimddp", "bf16", "i8mm", "sve"),
)
BF16_FLAGS = ("avx512_bf16", "amx_bf16", "bf16")
# CPUs without them add two products in 16 bits, which may overflow
INT8_FLAGS = ("avx512_vnni", "avx_vnni", "amx_int8", "asimddp", "i8mm")

SOCKET_NAME_LIMIT = 103  # bytes, on macOS; 107 on Linux


@dataclass(frozen=True, kw_only=True)
class Machine:
    """The machine that numbers were measured on, a row of the ledger.

    machine_key    digest of the other fields
    logical_cores  number of cores that this process may keep busy
    cpu_isa        instruction sets that matter for speed, separated by spaces
    """

    TABLE: ClassVar = "machines"
    KEY: ClassVar = ("machine_key",)
    machine_key: str
    cpu: str | None = None
    physical_cores: int | None = None
    logical_cores: int | None = None
    cpu_isa: str | None = None  # space-separated flags that matter for speed, such as avx512_vnni
    ram_bytes: int | None = None
    gpu: str | None = None
    gpu_memory_bytes: int | None = None
    gpu_driver: str | None = None
    os: str | None = None
    python: str | None = None
    torch: str | None = None
    torch_threads: int | None = None

    @property
    def title(self):
        """Return a name for people: the GPU, or the CPU if there is none, and the number of cores.

        The name does not depend on the software that is installed.
        """
        return f"{self.gpu or self.cpu}, {self.logical_cores} cores"

    @property
    def kind(self):
        """Return (title, instruction sets). Machines with the same pair are of one kind.

        Results of one kind of machine may be compared. The software that is installed does not
        count.
        """
        return self.title, self.cpu_isa


def cpu_isa():
    """Return the instruction sets of this CPU that are in `ISA_FLAGS`, as a list in that order."""
    cpu_flags = (_cpuinfo().get("flags") or _cpuinfo().get("Features") or "").split()
    return [flag for flag in ISA_FLAGS if flag in cpu_flags]


def cpu_name():
    """Return the name that the CPU gives itself, such as "AMD EPYC", or else its architecture."""
    return _cpuinfo().get("model name") or platform.machine()


@functools.cache
def _cpuinfo():
    """Return {field: value} of the first processor in /proc/cpuinfo; {} without such a file."""
    text = ""
    with suppress(OSError):
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8").split("\n\n")[0]
    fields = {}
    for line in text.splitlines():
        name, _, value = line.partition(":")
        fields[name.strip()] = value.strip()
    return fields


def last_level_cache_bytes():
    """Return the size of the first core's largest cache in bytes; None if it is not known.

    Only Linux reports it.
    """
    sizes = [
        path.read_text() for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size")
    ]
    return max((2**10 * int(text.rstrip("K\n")) for text in sizes), default=None)  # Linux gives KiB


@functools.cache
def describe() -> Machine:
    """Return the `Machine` that this process runs on."""
    import psutil
    import torch

    facts = {
        "cpu": cpu_name(),
        "physical_cores": psutil.cpu_count(logical=False),
        "logical_cores": usable_cores(),
        "cpu_isa": " ".join(cpu_isa()) or None,
        "ram_bytes": psutil.virtual_memory().total,
        **_gpu_facts(),
        "os": f"{platform.system()} {platform.release()} {platform.machine()}",
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "torch_threads": torch.get_num_threads(),
    }
    return Machine(machine_key=short_digest(json.dumps(facts, sort_keys=True)), **facts)


def usable_cores() -> int:
    """Return how many cores this process can keep busy.

    A container or a batch system may allow fewer cores than the machine has, or a quota of CPU
    time. A quota is rounded up: with a quota of 1.5 cores, two threads have work.
    """
    allowed = quota()
    if allowed is None:
        return allowed_cores()
    return min(allowed_cores(), max(1, math.ceil(allowed.cores)))


def allowed_cores() -> int:
    """Return how many cores this process may run on. A quota of CPU time does not count."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def fits_socket(path: Path) -> bool:
    """Return whether a path is short enough for a Unix socket: systems limit its length."""
    return len(os.fsencode(path)) <= SOCKET_NAME_LIMIT


def _gpu_facts():
    """Return the fields of `Machine` about the first GPU: {field: value}; {} without a GPU.

    The fields are "gpu", "gpu_memory_bytes" and, where the driver tells it, "gpu_driver".
    """
    import pynvml
    import torch

    if not torch.cuda.is_available():
        return {}
    properties = torch.cuda.get_device_properties(0)
    facts = {"gpu": properties.name, "gpu_memory_bytes": properties.total_memory}
    with suppress(pynvml.NVMLError):
        pynvml.nvmlInit()
        facts["gpu_driver"] = pynvml.nvmlSystemGetDriverVersion()
    return facts


@functools.cache
def commit():
    """Return the git commit of the workbook: 12 hex digits, with "-dirty" if files were changed.

    None where there is no git or no repository.
    """
    command = [
        "git",
        "-C",
        str(root()),
        "describe",
        "--always",
        "--dirty",
        "--abbrev=12",
        "--exclude=*",
    ]
    with suppress(OSError, subprocess.SubprocessError):
        completed = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
        return completed.stdout.strip()
    return None
