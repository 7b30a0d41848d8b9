"""Measure the energy of a call, by the counter of the processor (RAPL) or of the GPU (NVML).

Where a machine has no counter that may be read, the result holds the reason instead.
"""

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from labkit.measure.clock import clock_of
from labkit.measure.noise import gpu_handle

if TYPE_CHECKING:
    import torch

POWERCAP = Path("/sys/class/powercap")
PACKAGES = "intel-rapl:[0-9]*"  # folders of the processors, those of AMD included
NOT_READABLE = "only an administrator may read the processor's counter of energy on this machine"
NO_COUNTER = (
    "this machine shows no counter of energy, as most virtual machines, containers "
    "and laptops of Apple"
)
NO_GPU_COUNTER = "the driver of this GPU shows no counter of energy"


class Energy(NamedTuple):
    """Energy of one call.

    joules   joules per call; None where the energy was not measured
    counter  "RAPL" (whole processors, with everything else that they did) or "NVML" (the whole GPU)
    reason   why the energy was not measured; None where it was
    """

    joules: float | None
    counter: str | None = None
    reason: str | None = None


def energy(fn: Callable, *, seconds: float = 1.0, device: "torch.device | None" = None) -> Energy:
    """Measure the energy of one call of `fn`: the mean of calls during `seconds` seconds.

    device   device whose counter is read; None: the processor
    returns  an `Energy`, with a reason in place of the number where there is no readable counter

    The counter is read before and after the calls. It counts the whole processor or GPU: the energy
    of other programs, and the energy that the chip takes when idle, are included.
    """
    clock = clock_of(device)
    on_cpu = device is None or device.type == "cpu"
    read, counter, reason = _processor_counter() if on_cpu else _gpu_counter(device)
    if reason:
        return Energy(None, reason=reason)
    fn()
    clock.synchronize()

    # Both counters move in steps of some milliseconds: one call alone would show nothing.
    before = read()
    end = time.perf_counter() + seconds
    calls = 0
    while not calls or time.perf_counter() < end:
        fn()
        calls += 1
    clock.synchronize()
    return Energy(_spent(before, read()) / calls, counter)


def _spent(before, after):
    """Return the joules between two readings of the counters.

    before, after  {counter: (microjoules, largest reading of the counter)}

    A counter that shows less than before has reached its largest reading and begun again at 0.
    """
    microjoules = 0
    for name, (start, largest) in before.items():
        difference = after[name][0] - start
        # below 0: the counter began again at 0
        microjoules += difference if difference >= 0 else difference + largest
    return microjoules / 1e6


def _processor_counter():
    """Return (function that reads all processors, "RAPL", None), or (None, None, reason).

    The function returns {processor: (microjoules, largest reading)}. The reason says why this
    machine has no counter that can be read.
    """
    folders = sorted(folder for folder in POWERCAP.glob(PACKAGES) if folder.name.count(":") == 1)
    if not folders:
        return None, None, NO_COUNTER

    def read():
        readings = {}
        for folder in folders:
            readings[folder.name] = (
                _number(folder, "energy_uj"),
                _number(folder, "max_energy_range_uj"),
            )
        return readings

    try:
        read()
    except PermissionError:
        return None, None, NOT_READABLE
    except (OSError, ValueError):
        return None, None, NO_COUNTER
    return read, "RAPL", None


def _number(folder, name):
    return int((folder / name).read_text())


def _gpu_counter(device):
    """Return (function that reads the GPU, "NVML", None), or (None, None, reason).

    The function returns {"gpu": (microjoules, 0)}. The reason says why this GPU has no counter that
    can be read.
    """
    import pynvml

    from labkit.device import uuid

    handle = gpu_handle(uuid(device))

    def read():
        millijoules = pynvml.nvmlDeviceGetTotalEnergyConsumption(handle)
        return {"gpu": (1000 * millijoules, 0)}

    if handle is not None:
        with suppress(pynvml.NVMLError):
            read()
            return read, "NVML", None
    return None, None, NO_GPU_COUNTER
