"""The largest eigenvalue of the Hessian: how strongly the loss curves in its most curved direction."""

from typing import NamedTuple

import torch


class Eigen(NamedTuple):
    """value: the eigenvalue; vector: (P,) of length 1; products: Hessian-vector products it took;
    residual: |H v - value v| / |value|, 0 for an exact pair."""

    value: float
    vector: torch.Tensor
    products: int
    residual: float


def _hessian_vector(landscape, vector, weights=None):
    """H v at a point, (P,): the gradient of (gradient . v), by differentiating twice; H itself is never built.

    Source  Pearlmutter 1994, Fast exact multiplication by the Hessian
    """
    weights = (landscape.weights if weights is None else weights).detach().requires_grad_()
    product = torch.zeros_like(weights)
    for share, part in landscape.parts:
        (slope,) = torch.autograd.grad(part(weights), weights, create_graph=True)
        product += share * torch.autograd.grad(slope @ vector, weights)[0]
    return product


def top_eigenvalue(landscape, *, steps=60, tolerance=1e-3, seed=0):
    """The largest (most positive) eigenvalue of the Hessian where the solution lies, as an `Eigen`.

    steps      Hessian-vector products at most, for each of at most two power iterations
    tolerance  stop when the value changes by no more than this fraction from one product to the next

    Power iteration finds the eigenvalue of largest size. If that one is negative, a second iteration on H - value I,
    whose eigenvalues are all positive, finds the largest.
    """
    start = torch.randn(landscape.weights.shape, generator=torch.Generator().manual_seed(seed)).to(landscape.weights)
    found = _power_iteration(lambda v: _hessian_vector(landscape, v), start, steps, tolerance)
    if found.value >= 0:
        return found
    low = found.value
    shifted = _power_iteration(lambda v: _hessian_vector(landscape, v) - low * v, start, steps, tolerance)
    value, apart = shifted.value + low, shifted.residual * abs(shifted.value)
    return Eigen(value, shifted.vector, found.products + shifted.products, apart / max(abs(value), 1e-30))


def _power_iteration(product, vector, steps, tolerance):
    """The eigenvalue of largest size of a symmetric matrix given by its products with vectors, as an `Eigen`."""
    value = 0.0
    for done in range(1, steps + 1):
        vector = vector / vector.norm().clamp_min(1e-30)
        image = product(vector)
        before, value = value, float(vector @ image)
        if abs(value - before) <= tolerance * abs(value) or done == steps:
            residual = float((image - value * vector).norm()) / max(abs(value), 1e-30)
            return Eigen(value, vector, done, residual)
        vector = image
    return None
