"""inductor: torch.compile, which fuses operators into kernels of its own."""

import shutil

import torch

from labkit.engines.eager import on_device, serve
from labkit.errors import Unavailable


def load(model, example, *, precision, threads=None):
    """See `labkit.engines.load`. The first call of the result compiles; that takes from seconds to minutes."""
    if example.device.type == "cpu" and not any(map(shutil.which, ("g++", "clang++", "cl"))):
        raise Unavailable(
            "torch.compile cannot build kernels for the CPU here.",
            expected="a C++ compiler",
            found="none of g++, clang++, cl",
            fix="install g++ (Debian, Ubuntu: apt-get install g++)",
        )
    model = on_device(model, example, precision, "inductor")
    compiled = torch.compile(model, dynamic=False)
    return serve(model, example, engine="inductor", precision=precision, threads=threads, function=compiled)
