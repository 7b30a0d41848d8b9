"""The hardware's own counters: clocks, reasons for slowing down. None where it has none."""

import functools
from contextlib import suppress
from pathlib import Path

THROTTLES = {  # bits of NVML's clock event reasons that make a measurement doubtful
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x20: "thermal (software)",
    0x40: "thermal (hardware)",
    0x80: "power brake",
}


@functools.cache
def _gpu_handle(uuid):
    """NVML's handle of the GPU with torch's `uuid`, or None."""
    import pynvml

    with suppress(pynvml.NVMLError):
        pynvml.nvmlInit()
        for prefix in ("GPU-", "MIG-"):
            with suppress(pynvml.NVMLError):
                return pynvml.nvmlDeviceGetHandleByUUID(f"{prefix}{uuid}")
    return None


def _ask(name, uuid, *more):
    """The answer of NVML's function of this name for a GPU, or None."""
    import pynvml

    handle = _gpu_handle(uuid)
    if handle is None:
        return None
    with suppress(pynvml.NVMLError):
        return getattr(pynvml, name)(handle, *more)
    return None


def gpu_state(uuid):
    """{clock_mhz, throttle, strangers} of a GPU: its present clock, what slows it down, other processes on it."""
    clock = _ask("nvmlDeviceGetClockInfo", uuid, 1)  # of the streaming multiprocessors
    bits = _ask("nvmlDeviceGetCurrentClocksEventReasons", uuid) or 0
    running = {process.pid for process in _ask("nvmlDeviceGetComputeRunningProcesses", uuid) or ()}
    return {
        "clock_mhz": clock and float(clock),
        "throttle": ", ".join(name for bit, name in THROTTLES.items() if bits & bit) or None,
        # In a container the numbers are the host's, so count instead of comparing with our own.
        "strangers": max(len(running) - 1, 0),
    }


def cpu_mhz():
    """The present clock of the first core from cpufreq (absent in virtual machines), or None."""
    with suppress(OSError, ValueError):
        return int(Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq").read_text()) / 1e3
    return None


def throttle_events():
    """The number of times that the cores were slowed down for heat so far; 0 where there is no counter."""
    counts = Path("/sys/devices/system/cpu").glob("cpu[0-9]*/thermal_throttle/core_throttle_count")
    with suppress(OSError, ValueError):
        return sum(int(path.read_text()) for path in counts)
    return 0
