"""The common part of the experiments on latency: they yield a row for each batch.

A row has a time, or the reason why there is none.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch
from torch import nn

from labkit import device as devices
from labkit import engines
from labkit.engines.served import Served
from labkit.errors import LabError
from labkit.ledger.rows import Latency
from labkit.measure import Plan, latency

CALLS = 8  # the fewest that `latency` needs: two to warm up, six to time


def timed_batches(
    engine: str,
    model: nn.Module,
    inputs: Sequence[torch.Tensor],
    *,
    precision: str = "fp32",
    seconds: float,
    row_fields: dict,
) -> Iterator[Latency]:
    """Load a network into an engine, and yield one `Latency` for each of several batches.

    A batch whose calls would take longer than `seconds` gets a reason in place of a time, and so do
    all larger batches. Where the engine cannot load the network, all batches get the reason.

    engine      one of `engines.names()`
    model       the network
    inputs      the batches, tensors (N, ...), the smallest first
    precision   number format of the engine, such as "fp32" or "fp16"
    seconds     seconds for each batch
    row_fields  {field: value} for the fields of all rows: name, network, device
    """
    # beyond eight shapes of one module torch would run it eagerly, without a word
    torch.compiler.reset()
    try:
        served = engines.load(engine, model, inputs[0], precision=precision)
    except LabError as error:
        for x in inputs:
            yield _without_time(x, row_fields, _reason(error))
        return
    too_long = None  # why the time of a batch, and so of all larger ones, does not suffice
    for x in inputs:
        if too_long:
            row = _without_time(x, row_fields, too_long)
        else:
            row = _timed(served, x, seconds, row_fields)
        if row.reason and row.reason.startswith("one call"):
            too_long = row.reason
        yield row


def _timed(served: Served, x, seconds, row_fields):
    """Return the `Latency` of one batch: with a time, or with the reason why there is none.

    served      the network in its engine
    x           the batch
    seconds     seconds for its calls
    row_fields  as in `timed_batches`
    """
    try:
        served(x)  # the first call of a shape may compile
        one_call = _seconds_of_a_call(served, x)
        if CALLS * one_call > seconds:
            reason = (
                f"one call with batch {len(x)} takes {one_call:.3g} s, too long for {CALLS} in "
                f"{seconds:.3g} s"
            )
            return _without_time(x, row_fields, reason)
        row = latency(lambda: served(x), device=x.device, batch=len(x), plan=Plan(seconds=seconds))
    except Exception as error:
        if isinstance(error, LabError):
            return _without_time(x, row_fields, _reason(error))
        if devices.is_out_of_memory(error):
            return _without_time(x, row_fields, "the memory of the device does not suffice")
        raise
    measured_fields = {"device": served.device, "threads": served.threads}
    return replace(row, **row_fields | measured_fields)


def _seconds_of_a_call(served, x):
    """Return the seconds from the start of one call until the device has computed its result."""
    start = time.perf_counter()
    served(x)
    devices.synchronize(x.device)
    return time.perf_counter() - start


def _reason(error):
    """Return the text of a LabError in one line, at most 300 characters long."""
    return " ".join(f"{error.what} {error.found or ''}".split())[:300]


def _without_time(x, row_fields, reason):
    """Return the `Latency` of a batch that has a reason and no time."""
    return Latency(batch=len(x), reason=reason, **row_fields)
