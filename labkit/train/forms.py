"""Forms of a network that compute the same and take fewer kernels, or less Python: all share its weights."""

import warnings

import torch

from labkit import device as devices
from labkit.errors import Unavailable


def faster_form(model, config, *, example):
    """`model` as the config wants it run.

    example  () -> images of the size every step will have; called for CUDA graphs only
    """
    if config.torchscript:
        return scripted(model)
    if config.compile:
        devices.require_compiler(next(model.parameters()).device)
        return torch.compile(model, dynamic=False, mode="reduce-overhead" if config.cuda_graphs else None)
    if config.cuda_graphs and "cuda_graphs" not in config.idle(next(model.parameters()).device):
        return devices.graphed(model, example())
    return model


def scripted(model):
    """The model as TorchScript. Raises Unavailable where torch has none, or cannot translate this network."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", (FutureWarning, DeprecationWarning))  # it is deprecated: the lesson says so
            return torch.jit.script(model)
    except Exception as error:  # whatever its compiler dislikes is the reason
        raise Unavailable(
            "TorchScript cannot run this network here.",
            expected="a network of plain layers, and a torch that still has torch.jit.script",
            found=f"torch {torch.__version__}: {type(error).__name__}: {str(error).strip().splitlines()[0][:200]}",
            fix="use compile=True, its successor",
        ) from None
