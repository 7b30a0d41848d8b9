"""How flat the loss is around each of many solutions."""

from functools import partial
from typing import NamedTuple

import torch

from labkit.landscape import Landscape, sharpness, top_eigenvalue
from labkit.train.workers import work


class Flatness(NamedTuple):
    """sharpness: in the box of `labkit.landscape.sharpness`; eigenvalue: the largest of the Hessian;
    length: of the vector of all weights that have filters, so without biases and batch norm."""

    name: str
    seed: int
    sharpness: float
    eigenvalue: float
    length: float


def flatness(trained, data, *, epsilon=1e-3, device="cpu"):
    """How flat the loss on `data` is around each of the solutions: a list of `Flatness`, in the same order."""
    return work(partial(flatness_of, data=data, epsilon=epsilon, device=str(device)), trained, device)


def flatness_of(each, *, data, epsilon, device):
    view = Landscape.of(each.model, data, device=device)
    filters = [weight.norm() for weight in view.split(view.weights).values() if weight.dim() > 1]
    steepest = top_eigenvalue(view, tolerance=1e-2).value
    return Flatness(
        name=each.name,
        seed=each.seed,
        sharpness=sharpness(view, epsilon=epsilon).value,
        eigenvalue=steepest,
        length=float(torch.stack(filters).norm()),
    )
