"""Judge whether the machine was quiet, from its load counters and from the samples.

The judgement looks at the load of other processes and of other virtual machines, at the time that
the measuring thread waited for a core, at throttling of CPU and GPU, and at the spread and drift of
the samples.
"""

import functools
import math
import os
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from labkit import device as devices

# Above these values a measurement counts as noisy.
MAX_OTHER_LOAD = 0.10  # share of the cores' time that other processes used
MAX_STOLEN = 0.05  # share of the cores' time that the hypervisor gave to other machines
MAX_WAITED = 0.05  # share of the time that the measuring thread was ready to run and had no core
MAX_STOPPED = 0.05  # share of a quota's periods in which this process had used it up
# share of the time that the thread computed: its sleep, or what other threads of the process did
MAX_UNEXPLAINED = 0.05
MAX_SPREAD = 0.25  # interquartile range over the median
MAX_DRIFT = 0.10  # median of the last third against that of the first third

# the kernel counts in ticks of 10 ms, so the counters say nothing about a shorter window
MIN_WINDOW_S = 0.25
THROTTLE_REASONS = {  # bits of NVML's clock event reasons that make a measurement doubtful
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x20: "thermal (software)",
    0x40: "thermal (hardware)",
    0x80: "power brake",
}
# names of psutil; "guest" is included in "user"
BUSY_STATES = ("user", "nice", "system", "irq", "softirq")


@dataclass(frozen=True)
class Usage:
    """Counters of the machine at one moment; times are in seconds.

    The times begin at different moments: only differences between two readings mean something. A
    counter that the system does not have is NaN.
    """

    wall: float
    cores: int  # number of cores that this process may use
    busy: float = math.nan  # time of all processes on these cores
    process: float = math.nan  # time of this process
    stolen: float = math.nan  # time that other virtual machines took from these cores
    waited: float = math.nan  # time that this thread was ready to run and had no core
    computed: float = math.nan  # time that this thread had a core
    gpu_throttle: str | None = None  # why the GPU slows itself down now
    cpu_throttles: int = 0  # how many times the CPU has slowed itself down
    other_gpu_processes: int = 0  # number of other processes on the GPU
    quota: devices.Quota | None = None  # computing time that a container gives to its processes


@dataclass(frozen=True)
class Noise:
    """What disturbed a measurement between two readings of the counters.

    noisy    True if there is any reason for doubt
    why      all reasons, joined by "; "; None for a quiet measurement
    alone    True if the measuring thread never slept and no other thread of this process worked
    diluted  True if waiting made the calls longer, which moves ratios of their times towards 1
    """

    noisy: bool
    why: str | None
    alone: bool
    diluted: bool


def read_usage(device=None):
    """Read the counters of the machine and, for a GPU, of the device. Returns a `Usage`."""
    import psutil

    core_times = psutil.cpu_times(percpu=True)
    core_numbers = range(len(core_times))
    if hasattr(os, "sched_getaffinity"):  # Linux: the cores that this process may use
        core_numbers = [core for core in os.sched_getaffinity(0) if core < len(core_times)]

    # Add up the times of these cores. Not every system has all states.
    busy = 0.0
    stolen = 0.0
    for core in core_numbers:
        for state in BUSY_STATES:
            busy += getattr(core_times[core], state, 0)
        stolen += getattr(core_times[core], "steal", 0)

    gpu_fields = {}
    gpu = devices.uuid(device)
    if gpu:
        gpu_fields = _gpu_state(gpu)
    return Usage(
        wall=time.perf_counter(),
        cores=len(core_numbers),
        busy=busy,
        process=time.process_time(),
        stolen=stolen,
        waited=_ready_without_core_s(),
        computed=time.thread_time(),
        cpu_throttles=_cpu_throttles(),
        quota=devices.quota(),
        **gpu_fields,
    )


def other_threads_s():
    """Return the seconds that the other threads of this process have computed; 0 outside Linux.

    Call this while those threads sleep: the time of a running thread is counted with a delay.
    Reading the clock of the whole process instead would be less exact, because under a quota of
    computing time that clock advances in steps of some milliseconds.
    """
    this_thread = threading.get_native_id()
    seconds = 0.0
    for path in Path("/proc/self/task").glob("*/schedstat"):
        if path.parent.name != str(this_thread):
            with suppress(OSError):  # it has ended
                seconds += int(path.read_text().split()[0]) / 1e9
    return seconds


def _ready_without_core_s():
    """Return the seconds for which this thread was ready to run and had no core.

    NaN where the system has no such counter, as outside Linux.
    """
    with suppress(OSError, IndexError, ValueError):
        return int(Path("/proc/thread-self/schedstat").read_text().split()[1]) / 1e9
    return math.nan


@functools.cache
def gpu_handle(uuid):
    """Return NVML's handle of the GPU with torch's `uuid`; None if the driver does not know it."""
    import pynvml

    with suppress(pynvml.NVMLError):
        pynvml.nvmlInit()
        for prefix in ("GPU-", "MIG-"):
            with suppress(pynvml.NVMLError):
                return pynvml.nvmlDeviceGetHandleByUUID(f"{prefix}{uuid}")
    return None


def _gpu_state(uuid):
    """Return the throttling and the load of a GPU as fields of `Usage`: {name: value}.

    The fields are "gpu_throttle" and "other_gpu_processes". A field that the driver does not report
    is missing.
    """
    import pynvml

    handle = gpu_handle(uuid)
    if handle is None:  # NVML ends the process when it is asked with an empty handle
        return {}
    fields = {}
    with suppress(pynvml.NVMLError):
        bits = pynvml.nvmlDeviceGetCurrentClocksEventReasons(handle)
        reasons = [reason for bit, reason in THROTTLE_REASONS.items() if bits & bit]
        fields["gpu_throttle"] = ", ".join(reasons) or None
    with suppress(pynvml.NVMLError):
        # In a container the process numbers are those of the host, so ours cannot be found by its
        # number.
        process_ids = {
            process.pid for process in pynvml.nvmlDeviceGetComputeRunningProcesses(handle)
        }
        fields["other_gpu_processes"] = max(len(process_ids) - 1, 0)
    return fields


def _cpu_throttles():
    """Return how many times the cores have been slowed down for heat; 0 without such a counter."""
    counters = Path("/sys/devices/system/cpu").glob(
        "cpu[0-9]*/thermal_throttle/core_throttle_count"
    )
    with suppress(OSError, ValueError):
        return sum(int(path.read_text()) for path in counters)
    return 0


def _share_stopped(before, after):
    """Return the share of the periods in which a CPU quota was used up, 0 to 1.

    before, after  readings, each a `devices.Quota`, whose periods lie between them. Without a quota
                   they are None, and the share is 0
    """
    if before is None or after is None or after.periods <= before.periods:
        return 0.0
    return (after.stopped - before.stopped) / (after.periods - before.periods)


def noise_of(before, after, samples):
    """Judge a measurement from the counters before and after it, and from its samples.

    before, after  `Usage` readings
    samples        times in seconds that were taken between the readings
    returns        a `Noise`
    """
    wall = after.wall - before.wall
    if wall < MIN_WINDOW_S:
        wall = math.nan

    # Shares of the time of one core, then of all cores. A missing counter is NaN, and so is every
    # share that is computed from it.
    busy = (after.busy - before.busy) / wall
    process = (after.process - before.process) / wall
    waited = (after.waited - before.waited) / wall
    computed = (after.computed - before.computed) / wall
    other_load = min((busy - process) / after.cores, 1.0)
    stolen = (after.stolen - before.stolen) / wall / after.cores

    # Every comparison with NaN is False, so a missing counter gives no reason.
    reasons = []
    if other_load > MAX_OTHER_LOAD:
        reasons.append(f"other processes used {100 * other_load:.0f} % of the cores")
    if stolen > MAX_STOLEN:
        reasons.append(f"other machines took {100 * stolen:.0f} % of the cores")
    if waited > MAX_WAITED:
        reasons.append(f"the thread waited {100 * waited:.0f} % of the time")
    stopped = _share_stopped(before.quota, after.quota)
    if stopped > MAX_STOPPED:
        reasons.append(
            f"a quota of {after.quota.cores:g} cores stopped it in "
            f"{100 * stopped:.0f} % of the periods"
        )
    if after.cpu_throttles > before.cpu_throttles:
        reasons.append("the CPU slowed down for heat")
    if after.gpu_throttle:
        reasons.append(f"the GPU slows itself down: {after.gpu_throttle}")
    if after.other_gpu_processes > 0:
        reasons.append(f"{after.other_gpu_processes} other processes on the GPU")
    if len(samples) >= 11:
        sample_spread = spread(samples)
        if sample_spread > MAX_SPREAD:
            reasons.append(
                "the middle half of the samples spreads over "
                f"{100 * sample_spread:.0f} % of the median"
            )
        sample_drift = drift(samples)
        if abs(sample_drift) > MAX_DRIFT:
            reasons.append(f"the last third took {100 * sample_drift:+.0f} % against the first")

    # Waiting can be subtracted only if the thread did nothing but compute and wait. Its sleep is
    # compared with the time that it computed, not with the whole time: on a busy machine, where it
    # waits most of the time, a short sleep lasts as long as the work itself.
    other_threads_idle = process - computed <= MAX_UNEXPLAINED * computed
    never_slept = abs(1 - computed - waited) <= MAX_UNEXPLAINED * computed
    alone = other_threads_idle and never_slept
    diluted = waited > MAX_WAITED or (not alone and other_load > MAX_OTHER_LOAD)
    return Noise(bool(reasons), "; ".join(reasons) or None, alone, diluted)


def spread(samples):
    """Return the interquartile range of samples divided by their median; 0 for a constant series.

    A few spikes do not change the result.
    """
    first_quartile, median, third_quartile = np.quantile(samples, [0.25, 0.5, 0.75])
    if median <= 0:
        return 0.0
    return float((third_quartile - first_quartile) / median)


def drift(samples):
    """Return by which factor the samples grew from the first third to the last, minus 1.

    The factor is the ratio of the medians of these thirds: 0.1 means that the last third took 10 %
    longer.

    samples  at least 3
    """
    third = len(samples) // 3
    return float(np.median(samples[-third:]) / np.median(samples[:third]) - 1)
