"""Compile a network with TorchScript, the predecessor of torch.compile."""

import warnings

import torch
from torch import nn

from labkit.errors import Unavailable, first_line


def scripted(model: nn.Module) -> nn.Module:
    """Return the model compiled by torch.jit.script.

    Raises Unavailable where torch has no TorchScript, or cannot compile this network.
    """
    try:
        with warnings.catch_warnings():
            # torch warns that TorchScript is deprecated, and the lesson says so, too
            warnings.simplefilter("ignore", (FutureWarning, DeprecationWarning))
            return torch.jit.script(model)
    except Exception as error:  # any error of torch's compiler
        raise Unavailable(
            "TorchScript cannot run this network here.",
            expected="a network of plain layers, and a torch that still has torch.jit.script",
            found=f"torch {torch.__version__}: {first_line(error)[:200]}",
            fix="use torch.compile, its successor",
        ) from None
