"""inductor: torch.compile, which fuses operators into kernels of its own."""

import torch

from labkit import device as devices
from labkit.engines.eager import on_device, serve


def load(model, example, *, precision, threads=None):
    """See `labkit.engines.load`. The first call of the result compiles; that takes from seconds to minutes."""
    devices.require_compiler(example.device)
    model = on_device(model, example, precision, "inductor")
    compiled = torch.compile(model, dynamic=False)
    return serve(model, example, engine="inductor", precision=precision, threads=threads, function=compiled)
