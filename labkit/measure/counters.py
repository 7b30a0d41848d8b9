"""What the hardware counts about itself: energy, clocks, why it slows down. None where it does not tell."""

import functools
import os
from contextlib import suppress
from pathlib import Path

POWERCAP = Path("/sys/class/powercap")
THROTTLES = {  # bits of NVML's clock event reasons that make a measurement doubtful
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x20: "thermal (software)",
    0x40: "thermal (hardware)",
    0x80: "power brake",
}


@functools.cache
def gpu_handle(uuid):
    """NVML's handle of the GPU with torch's `uuid`, or None."""
    import pynvml

    with suppress(pynvml.NVMLError):
        pynvml.nvmlInit()
        for prefix in ("GPU-", "MIG-"):
            with suppress(pynvml.NVMLError):
                return pynvml.nvmlDeviceGetHandleByUUID(f"{prefix}{uuid}")
    return None


def gpu_state(uuid):
    """{clock_mhz, throttle, strangers} of a GPU: its present clock, what slows it down, other processes on it."""
    import pynvml

    handle, state = gpu_handle(uuid), {}
    if handle is None:
        return state
    with suppress(pynvml.NVMLError):
        state["clock_mhz"] = float(pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM))
    with suppress(pynvml.NVMLError):
        bits = pynvml.nvmlDeviceGetCurrentClocksEventReasons(handle)
        state["throttle"] = ", ".join(name for bit, name in THROTTLES.items() if bits & bit) or None
    with suppress(pynvml.NVMLError):
        running = pynvml.nvmlDeviceGetComputeRunningProcesses(handle)
        # In a container the numbers are the host's, so count instead of comparing with our own.
        state["strangers"] = max(len({process.pid for process in running}) - 1, 0)
    return state


def gpu_energy_j(uuid):
    """Joules the GPU used since its driver was loaded, or None."""
    import pynvml

    handle = gpu_handle(uuid)
    if handle is None:
        return None
    with suppress(pynvml.NVMLError):
        return pynvml.nvmlDeviceGetTotalEnergyConsumption(handle) / 1e3
    return None


def rapl_domains(folder=None):
    """The folders of the CPU packages' energy counters that this user may read."""
    found = sorted((folder or POWERCAP).glob("*-rapl:[0-9]")) if (folder or POWERCAP).is_dir() else []
    return [domain for domain in found if os.access(domain / "energy_uj", os.R_OK)]


def rapl_energy_j(domains):
    """(joules so far, joules at which the counter starts again) of each package."""
    return [
        (int((d / "energy_uj").read_text()) / 1e6, int((d / "max_energy_range_uj").read_text()) / 1e6) for d in domains
    ]


def cpu_mhz():
    """The present clock of the first core from cpufreq (absent in virtual machines), or None."""
    with suppress(OSError, ValueError):
        return int(Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq").read_text()) / 1e3
    return None


def throttle_events():
    """How often the cores were slowed down for heat so far; 0 where it is not told."""
    counts = Path("/sys/devices/system/cpu").glob("cpu[0-9]*/thermal_throttle/core_throttle_count")
    with suppress(OSError, ValueError):
        return sum(int(path.read_text()) for path in counts)
    return 0
