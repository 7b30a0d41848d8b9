"""What the CPU says of itself: its name and its instruction sets."""

import functools
import platform
import subprocess
import sys
from pathlib import Path

# The instruction sets that decide how fast a CPU is at fp32, bf16 and int8.
ISA_FLAGS = (
    *("avx2", "fma", "avx512f", "avx512_vnni", "avx512_bf16", "avx512_fp16", "avx_vnni"),
    *("amx_tile", "amx_bf16", "amx_int8"),
    *("asimd", "asimddp", "bf16", "i8mm", "sve"),
)
BF16_FLAGS = ("avx512_bf16", "amx_bf16", "bf16")


def cpu_model():
    """The CPU's own name for itself, or None."""
    if sys.platform == "linux":
        return cpuinfo().get("model name") or platform.machine()
    if sys.platform == "darwin":
        return sysctl("machdep.cpu.brand_string")
    return platform.processor() or None


def cpu_isa():
    """The instruction sets of `ISA_FLAGS` this CPU has, in that order."""
    if sys.platform == "linux":
        found = set((cpuinfo().get("flags") or cpuinfo().get("Features") or "").split())
        return [flag for flag in ISA_FLAGS if flag in found]
    if sys.platform == "darwin":
        names = {"bf16": "hw.optional.arm.FEAT_BF16", "i8mm": "hw.optional.arm.FEAT_I8MM"}
        return [flag for flag, name in names.items() if sysctl(name) == "1"]
    import torch

    return [torch.backends.cpu.get_cpu_capability().lower()]


@functools.cache
def cpuinfo():
    """The first processor's lines of /proc/cpuinfo as a dict."""
    text = Path("/proc/cpuinfo").read_text(encoding="utf-8").split("\n\n")[0]
    return {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in text.splitlines())}


def sysctl(name):
    return first_line(["sysctl", "-n", name])


def first_line(command):
    """First line a command prints, or None when it fails or prints nothing."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return None
    lines = done.stdout.strip().splitlines()
    return lines[0] if done.returncode == 0 and lines else None
