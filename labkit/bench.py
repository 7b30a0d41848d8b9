"""Measure a network from the command line: the same harness and the same rows as in the lessons."""

import uuid
from dataclasses import replace

from labkit import device as devices
from labkit import engines, ledger, measure, models
from labkit.errors import Unavailable
from labkit.rows import Latency, Run


def bench(model, batches, *, engine="eager", precision="fp32", plan=None):
    """Yield a `rows.Latency` for each batch size as soon as it is measured and in the ledger.

    What cannot run here is a row with the reason and no number.
    """
    import torch

    device, machine = devices.pick(), devices.describe()
    key = f"bench-{uuid.uuid4().hex[:12]}"
    run = Run(run_key=key, notebook="labkit bench", profile="lab", seed=0, started_utc=ledger.now(),
              machine_key=machine.machine_key, commit=devices.commit())  # fmt: skip
    ledger.add(machine, run)
    torch.manual_seed(0)
    for batch in batches:
        network, shape = models.build(model)
        row = measure_one(engine, network, torch.randn(batch, *shape, device=device), precision=precision, plan=plan)
        row = replace(row, run_key=key, name=f"{model} {engine} {precision}")
        ledger.add(row)
        yield row


def measure_one(engine, network, images, *, precision, plan):
    """The latency of one batch size, or a row with the reason."""
    try:
        call = engines.load(engine, network, images, precision=precision)
    except Unavailable as error:
        return Latency(device=str(images.device), threads=devices.threads(), batch=len(images), reason=error.what)
    return measure.latency(lambda: call(images), device=images.device, batch=len(images), plan=plan)
