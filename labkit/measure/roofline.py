"""The roofs of this machine: how fast it can copy and multiply at best, and how near a result comes to that."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from labkit import device as devices
from labkit.errors import MeasureError
from labkit.ledger.rows import Ceiling
from labkit.ledger.shown import shown
from labkit.measure.clock import clock_of, provenance
from labkit.measure.noise import noise_of

if TYPE_CHECKING:
    import torch

PRECISIONS = ("fp32", "bf16", "int8")
CALLS = 3  # at least so many of each, the first to warm up
WORK_OF_NEXT_SIZE = 8  # a matrix of twice the side takes eight times the work of this one
SLACK = 0.10  # a result may be this much above a ceiling, which was itself measured


def ceilings(
    *, device: "torch.device | None" = None, seconds: float = 6.0, precisions: Sequence[str] = PRECISIONS
) -> tuple[Ceiling, ...]:
    """The best rates seen on this machine within about `seconds`: `rows.Ceiling` for copy and matmul.

    copy         bytes read plus bytes written per second, buffers larger than the last-level cache
    matmul-fp32, matmul-bf16, matmul-int8   multiplications and additions per second of square matrices,
                 as large as the time allows; of the `precisions` asked for
    What cannot run here is a row with a reason. On a busy machine they take up to twice the seconds, and may be low.
    """
    clock = clock_of(device)
    share = seconds / (1 + len(precisions))
    measured = [_copy_ceiling(clock, share), *(_matmul_ceiling(clock, share, name) for name in precisions)]
    return tuple(Ceiling(**provenance(clock), **fields) for fields in measured)


def _copy_ceiling(clock, seconds):
    """Fields of the ceiling `copy`."""
    import torch

    cache = devices.cache_bytes(clock.device)
    size = min(max(4 * cache, 2**26), devices.free_bytes(clock.device) // 8)
    source = torch.ones(size, dtype=torch.uint8, device=clock.device)
    target = torch.empty_like(source)
    best, fields = _fastest(clock, lambda: target.copy_(source), seconds)
    small = "the buffers fit in the cache" if size <= cache else None
    return {"name": "copy", "bytes_per_s": 2 * size / best, "reason": small, **fields}


def _matmul_ceiling(clock, seconds, precision):
    """Fields of the ceiling `matmul-<precision>`: the best of several sizes, the larger ones where time allows.

    A CPU without instructions for the precision crawls, and so does a product one of whose threads waits for a core.
    Before a crawl ends the row, the same size is tried again until twice the seconds are over.
    """
    sizes = (2048, 4096, 8192) if devices.supports_events(clock.device) else (256, 512, 1024, 2048)
    found, end = [], clock.now() + 2 * seconds
    for size in sizes:
        try:
            call = _product(size, precision, clock.device)
            best, fields = _fastest(clock, call, seconds / len(sizes))
        except RuntimeError as error:
            reason = f"torch cannot multiply {precision} here: {str(error).splitlines()[0]}"
            return {"name": f"matmul-{precision}", "reason": reason}
        longest = seconds / 2 / WORK_OF_NEXT_SIZE if size < sizes[-1] else np.inf  # so that the next size fits twice
        while best > longest and clock.now() < end:
            best = min(best, clock.time(call)[0])
        found.append((2 * size**3 / best, fields))
        if best > longest:
            break
    rate, fields = max(found, key=lambda each: each[0])
    return {"name": f"matmul-{precision}", "ops_per_s": rate, **fields}


def _product(size, precision, device):
    """A function that multiplies two square matrices of this precision."""
    import torch

    if precision == "int8":
        a, b = (torch.randint(-8, 8, (size, size), dtype=torch.int8, device=device) for _ in range(2))
        return lambda: torch._int_mm(a, b)
    dtype = {"fp32": torch.float32, "bf16": torch.bfloat16}[precision]
    a, b = (torch.randn(size, size, device=device).to(dtype) for _ in range(2))
    out = torch.empty_like(a)
    return lambda: torch.mm(a, b, out=out)


def _fastest(clock, fn, seconds):
    """(seconds of the fastest call, fields on its samples) within about `seconds`, after a call that does not count."""
    before = clock.usage()
    clock.time(fn)
    samples, begin = [], clock.now()
    while len(samples) < CALLS - 1 or clock.now() - begin < seconds:
        samples.append(clock.time(fn)[0])
    noise = noise_of(before, clock.usage(), np.array(samples))
    return min(samples), {"samples": len(samples), "noisy": noise.noisy}


def roofline(seconds: float, *, ops: float, bytes_moved: float, ceilings: Any, precision: str = "fp32") -> Any:
    """The share of this machine's best rate that a result reaches; refused more than a tenth above it.

    seconds      of one call
    ops          operations of one call: multiplications and additions
    bytes_moved  read and written by one call
    ceilings     as of `ceilings()`; the roof is the rate of its matmul, or of its copy where fewer operations stand
                 against each byte
    Raises       MeasureError: a result above the roof, or a roof that is not known
    """
    rates = {row.name: row.bytes_per_s or row.ops_per_s for row in ceilings}
    name = f"matmul-{precision}"
    if not rates.get("copy") or not rates.get(name):
        raise MeasureError(
            "This machine's roof is not known.",
            expected=f"ceilings with a rate for copy and {name}",
            found=", ".join(known for known, rate in rates.items() if rate) or "none",
            fix="pass ceilings=measure.ceilings(), or another precision",
        )
    best, rate = min(rates[name], rates["copy"] * ops / bytes_moved), ops / seconds
    if rate > (1 + SLACK) * best:
        raise MeasureError(
            f"A result {shown(rate / best)} times the machine's best cannot be true.",
            expected=f"at most {shown(best)}op/s for this work",
            found=f"{shown(rate)}op/s",
            fix="synchronise, count the operations again, or check that the work is really done",
        )
    return rate / best
