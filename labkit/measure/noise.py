"""Was the machine quiet? Load of other processes, stolen and waited time, clocks, and the samples' own shape."""

import functools
import math
import os
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from labkit import device as devices
from labkit.measure.stats import drift, spread

OTHER_LOAD = 0.10  # of the cores' time
STOLEN = 0.05  # taken by the hypervisor
WAITED = 0.05  # of the measuring thread's time: it could run and was not let
ALONE = 0.05  # of the time, unaccounted for: the thread slept, or other threads of the process computed
SPREAD = 0.25  # interquartile range over the median
DRIFT = 0.10  # last third against first third
SHORTEST_S = 0.25  # kernels count in ticks of 10 ms: a shorter window says nothing of the load
THROTTLES = {  # bits of NVML's clock event reasons that make a measurement doubtful
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x20: "thermal (software)",
    0x40: "thermal (hardware)",
    0x80: "power brake",
}


@dataclass(frozen=True)
class Usage:
    """Counters of one moment, in seconds since some start; NaN where the system does not tell."""

    wall: float
    cores: int
    busy: float = math.nan  # all processes on the cores we may use
    own: float = math.nan  # this process
    stolen: float = math.nan  # by other virtual machines
    waited: float = math.nan  # this thread, ready to run but without a core
    computed: float = math.nan  # this thread
    throttle: str | None = None  # why the device slows itself down right now
    throttled: int = 0  # how often the CPU did so far
    strangers: int = 0  # other processes on the GPU


@dataclass(frozen=True)
class Noise:
    """The noise of a window: `why` names every reason, and is None when it was quiet.

    alone    this thread alone worked: all the time it computed, or waited for a core
    diluted  waiting made the calls longer, which moves ratios of their times towards 1
    """

    noisy: bool
    why: str | None
    alone: bool
    diluted: bool


def read_usage(device=None):
    """The machine's counters now."""
    import psutil

    gpu = devices.uuid(device)
    times = psutil.cpu_times(percpu=True)
    usable = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(len(times))
    mine = [times[core] for core in usable if core < len(times)]
    working = ("user", "nice", "system", "irq", "softirq")  # guests are among the users
    return Usage(
        wall=time.perf_counter(),
        cores=len(mine),
        busy=sum(getattr(t, kind, 0) for t in mine for kind in working),
        own=time.process_time(),
        stolen=sum(getattr(t, "steal", 0) for t in mine),
        waited=_scheduled(Path("/proc/thread-self/schedstat"), 1),
        computed=time.thread_time(),
        throttled=_throttle_events(),
        **(_gpu_state(gpu) if gpu else {}),
    )


def computed_s(pid):
    """Seconds for which all threads of a process had a core, as long as they sleep now (Linux), else None."""
    found = [_scheduled(path, 0) for path in Path(f"/proc/{pid}/task").glob("*/schedstat")]
    return sum(found) if found and math.isfinite(sum(found)) else None


def _scheduled(path, place):
    """Seconds that a thread had a core (place 0), or was ready and had to wait for one (1): Linux; else NaN."""
    with suppress(OSError, IndexError, ValueError):
        return int(path.read_text().split()[place]) / 1e9
    return math.nan


# --- the hardware's own counters; None where it has none ---


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


def _gpu_state(uuid):
    """{throttle, strangers} of a GPU, as far as it tells: what slows it down, other processes on it."""
    import pynvml

    handle, found = _gpu_handle(uuid), {}
    if handle is None:  # the driver does not know this GPU, and would end the process at a handle that is none
        return found
    with suppress(pynvml.NVMLError):
        bits = pynvml.nvmlDeviceGetCurrentClocksEventReasons(handle)
        found["throttle"] = ", ".join(name for bit, name in THROTTLES.items() if bits & bit) or None
    with suppress(pynvml.NVMLError):
        running = {process.pid for process in pynvml.nvmlDeviceGetComputeRunningProcesses(handle)}
        found["strangers"] = max(len(running) - 1, 0)  # in a container the numbers are the host's: none is ours
    return found


def _throttle_events():
    """The number of times that the cores were slowed down for heat so far; 0 where there is no counter."""
    counts = Path("/sys/devices/system/cpu").glob("cpu[0-9]*/thermal_throttle/core_throttle_count")
    with suppress(OSError, ValueError):
        return sum(int(path.read_text()) for path in counts)
    return 0


def noise_of(before, after, samples):
    """The `Noise` of the window between two `Usage` readings in which `samples` (seconds) were taken."""
    wall = after.wall - before.wall
    wall = wall if wall >= SHORTEST_S else math.nan
    names = ("busy", "own", "stolen", "waited", "computed")
    busy, own, stolen, waited, computed = ((getattr(after, name) - getattr(before, name)) / wall for name in names)
    others, stolen = min((busy - own) / after.cores, 1.0), stolen / after.cores
    found = {  # nothing is true of a NaN
        f"other processes used {100 * others:.0f} % of the cores": others > OTHER_LOAD,
        f"other machines took {100 * stolen:.0f} % of the cores": stolen > STOLEN,
        f"the thread waited {100 * waited:.0f} % of the time": waited > WAITED,
        "the CPU slowed down for heat": after.throttled > before.throttled,
        f"the GPU slows itself down: {after.throttle}": bool(after.throttle),
        f"{after.strangers} other processes on the GPU": after.strangers > 0,
    }
    if len(samples) >= 11:
        wide, moved = spread(samples), drift(samples)
        found[f"the middle half of the samples spreads over {100 * wide:.0f} % of the median"] = wide > SPREAD
        found[f"the last third took {100 * moved:+.0f} % against the first"] = abs(moved) > DRIFT
    why = "; ".join(reason for reason, so in found.items() if so) or None
    alone = own - computed <= ALONE * computed and abs(1 - computed - waited) <= ALONE
    return Noise(why is not None, why, alone, waited > WAITED or (not alone and others > OTHER_LOAD))
