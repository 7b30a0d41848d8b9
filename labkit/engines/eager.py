"""eager: torch as it is, one operator after the other."""

import torch

from labkit import device as devices
from labkit.device import packages
from labkit.engines.served import Served, first_tensor, named_tensors

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
RUNS = "torch"
PRECISIONS = tuple(DTYPES)


def check():
    """Yield what this engine needs, as `Check`s."""
    yield packages.check("torch", needed=True)


def load(model, example, *, precision, threads):
    """Load a torch module; the arguments and the result are those of `labkit.engines.load`.

    bf16 and fp16 are computed by autocast, which leaves sensitive operators in fp32.
    """
    device_type = example.device.type
    dtype = DTYPES[precision]

    def answer(*batch):
        with (
            devices.using_threads(threads),
            torch.autocast(device_type, dtype=dtype, enabled=precision != "fp32"),
        ):
            return model(*batch)

    return Served(
        device=str(example.device),
        threads=threads,
        run=lambda *batch: first_tensor(answer(*batch)),
        run_whole=lambda *batch: named_tensors(answer(*batch)),
    )
