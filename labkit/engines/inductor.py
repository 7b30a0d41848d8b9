"""inductor: torch.compile, which fuses operators into kernels of its own."""

import torch

from labkit import device as devices
from labkit.device.packages import Check
from labkit.engines import eager
from labkit.errors import Unavailable

RUNS = "torch"
PRECISIONS = eager.PRECISIONS


def check():
    """Yield what this engine needs, as `Check`s."""
    try:
        devices.require_compiler("cpu")
        yield Check("C++ compiler", True, "torch.compile can build kernels for the CPU")
    except Unavailable as error:
        yield Check("C++ compiler", False, f"{error.found}: {error.what}", fix=error.fix)


def load(model, example, *, precision, threads):
    """Load a torch module; the arguments and the result are those of `labkit.engines.load`.

    The network is compiled in the first call of the `Served`, which takes from seconds to minutes.
    """
    devices.require_compiler(example.device)
    return eager.load(
        torch.compile(model, dynamic=False), example, precision=precision, threads=threads
    )
