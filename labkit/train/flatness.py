"""How flat the training loss is around the solutions of `labkit.train.sweep`; each is looked at in a job of its own."""

from functools import partial
from typing import NamedTuple

import torch

from labkit.landscape import Landscape, hessian_product, sharpness, top_eigenvalue, with_gradient
from labkit.train.workers import work


class Flatness(NamedTuple):
    """sharpness: in the box of `labkit.landscape.sharpness`; by_slope and by_curvature: what the gradient and the
    Hessian alone contribute to it; by_skew: what the odd orders beyond the gradient contribute, the third above all;
    eigenvalue: the largest of the Hessian; length: of the vector of all weights that have filters, so without biases
    and batch norm."""

    name: str
    seed: int
    sharpness: float
    by_slope: float
    by_curvature: float
    by_skew: float
    eigenvalue: float
    length: float


def flatness(trained, data, *, epsilon=1e-3, device="cpu"):
    """How flat the loss on `data` is around each of the solutions: a list of `Flatness`, in the same order."""
    solutions = [each._replace(looks=()) for each in trained]  # they travel to the workers
    return work(partial(_flatness_of, data=data, epsilon=epsilon, device=str(device)), solutions, device)


def _flatness_of(each, *, data, epsilon, device):
    loss = Landscape(each.model, data, device=device)
    weights, filters = loss.weights, [part for part in loss.split(loss.weights).values() if part.dim() > 1]
    rise, slope = sharpness(loss, weights, epsilon=epsilon), with_gradient(loss, weights)[1]
    per_cent, product = 100 / (1 + rise.loss), hessian_product(loss, weights)
    with torch.no_grad():
        opposite = float(loss(weights - rise.step))  # even orders are the same there, odd ones have the other sign
    return Flatness(
        each.name,
        each.seed,
        sharpness=rise.value,
        by_slope=per_cent * float(slope @ rise.step),
        by_curvature=per_cent * float(rise.step @ product(rise.step)) / 2,
        by_skew=per_cent * ((rise.highest - opposite) / 2 - float(slope @ rise.step)),
        eigenvalue=top_eigenvalue(loss, weights, tolerance=1e-2).value,
        length=float(torch.cat([part.flatten() for part in filters]).norm()),
    )
