"""The machine that numbers are measured on, the words of its CPU about itself, and the commit of the workbook."""

import functools
import json
import os
import platform
import subprocess
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from labkit.files import root, short_digest

# The instruction sets that decide how fast a CPU is at fp32, bf16 and int8.
ISA_FLAGS = (
    *("avx2", "fma", "avx512f", "avx512_vnni", "avx512_bf16", "avx512_fp16", "avx_vnni"),
    *("amx_tile", "amx_bf16", "amx_int8"),
    *("asimd", "asimddp", "bf16", "i8mm", "sve"),
)
BF16_FLAGS = ("avx512_bf16", "amx_bf16", "bf16")
INT8_FLAGS = ("avx512_vnni", "avx_vnni", "amx_int8", "asimddp", "i8mm")  # others add two products in 16 bits


@dataclass(frozen=True, kw_only=True)
class Machine:
    """The machine that numbers were measured on; `machine_key` is a digest of the other fields."""

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
        """For people; machines of one kind share it, whatever is installed on them."""
        return f"{self.gpu or self.cpu}, {self.logical_cores} cores"

    @property
    def kind(self):
        """What machines share whose results may be compared, whatever is installed on them."""
        return self.title, self.cpu_isa


def cpu_isa():
    """The instruction sets of `ISA_FLAGS` this CPU has, in that order."""
    found = (_cpuinfo().get("flags") or _cpuinfo().get("Features") or "").split()
    return [flag for flag in ISA_FLAGS if flag in found]


@functools.cache
def _cpuinfo():
    """The first processor's lines of /proc/cpuinfo as a dict; empty where there is no such file."""
    text = ""
    with suppress(OSError):
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8").split("\n\n")[0]
    return {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in text.splitlines())}


def last_level_cache_bytes():
    """Size of the first core's largest cache (Linux), else None."""
    sizes = [path.read_text() for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size")]
    return max((2**10 * int(text.rstrip("K\n")) for text in sizes), default=None)  # Linux gives KiB


@functools.cache
def describe() -> Machine:
    """This machine as a ledger row."""
    import psutil
    import torch

    facts = {
        "cpu": _cpuinfo().get("model name") or platform.machine(),
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
    """Cores this process may run on; a container or a batch system may allow fewer than there are."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _gpu_facts():
    """Name, memory and driver of the first GPU, as far as there is one."""
    import pynvml
    import torch

    if not torch.cuda.is_available():
        return {}
    properties = torch.cuda.get_device_properties(0)
    found = {"gpu": properties.name, "gpu_memory_bytes": properties.total_memory}
    with suppress(pynvml.NVMLError):
        pynvml.nvmlInit()
        found["gpu_driver"] = pynvml.nvmlSystemGetDriverVersion()
    return found


@functools.cache
def commit():
    """The workbook's git commit, with `-dirty` when files differ from it; None outside a checkout."""
    command = ["git", "-C", str(root()), "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    with suppress(OSError, subprocess.SubprocessError):
        return subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.strip()
    return None
