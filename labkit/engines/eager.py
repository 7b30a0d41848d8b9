"""eager: torch as it is, one operator after the other."""

import torch

from labkit import device as devices
from labkit.device import packages
from labkit.engines.served import Served

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
RUNS, PRECISIONS = "torch", tuple(DTYPES)


def check():
    """See `labkit.engines`."""
    yield packages.check("torch", needed=True)


def load(model, example, *, precision, threads):
    """See `labkit.engines.load`."""
    return serve(model, model, example, precision=precision, threads=threads)


def serve(model, call, example, *, precision, threads):
    """Serve a module by `call`: itself, or what was compiled from it; autocast keeps in fp32 what needs it."""
    kind, dtype = example.device.type, DTYPES[precision]

    def run(*batch):
        with devices.using_threads(threads), torch.autocast(kind, dtype=dtype, enabled=precision != "fp32"):
            return call(*batch)

    with torch.inference_mode():
        shape = model(example[:1]).shape
    name = "input" if example.is_floating_point() else "tokens"
    return Served(
        device=str(example.device),
        threads=threads,
        inputs={name: ("batch", *example.shape[1:])},
        outputs={"logits": ("batch", *shape[1:])},
        run=run,
    )
