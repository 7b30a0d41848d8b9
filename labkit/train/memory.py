"""What to say when the memory of the device does not suffice."""

from contextlib import contextmanager

from labkit import device as devices
from labkit.errors import LabError
from labkit.ledger.shown import shown


class OutOfMemory(LabError):
    """The device has too little memory for this training."""


@contextmanager
def explained(config, device):
    """Turn an out-of-memory error of torch into one that names the batch, the peak and what to try."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not devices.is_out_of_memory(error):
            raise
        raise OutOfMemory(
            f"There is not enough memory on {device} to train with batches of {config.batch // config.accumulate}.",
            expected=f"room for a pass over {config.batch // config.accumulate} images, forwards and backwards",
            found=so_far(device),
            fix=advice(config, device),
        ) from None  # the traceback would keep the tensors alive


def so_far(device):
    """How much was in use, and how much is free."""
    peak = devices.peak_memory_bytes(device)
    used = f"a peak of {shown(peak, 'B')}" if peak else "no counter of the peak here"
    return f"{used}, {shown(devices.free_bytes(device), 'B')} free now"


def advice(config, device):
    """What to try, the switches that change nothing about the result first."""
    tips = [f"accumulate={2 * config.accumulate} (the same step in parts)"]
    tips += ["amp='bf16'"] if config.amp is None else []
    tips += ["resident=False"] if config.resident and device.type != "cpu" else []
    tips += [f"batch={config.batch // 2}"] if config.batch > 1 else []
    return ", then ".join(tips)
