"""The loss along a line from one solution to another, and on a plane around one, and the directions that span it.

Source  of the directions: Li, Xu, Taylor, Studer, Goldstein 2018, Visualizing the loss landscape of neural nets,
        arXiv:1712.09913
"""

from typing import NamedTuple

import numpy as np
import torch

from labkit.landscape.loss import split


class Surface(NamedTuple):
    """x: (n,) steps along two directions; loss: (n, n), loss[i, j] at x[i] of the first and x[j] of the second."""

    x: np.ndarray
    loss: np.ndarray


def interpolate(landscape, end, alphas, *, measure=None):
    """(n,) values at (1 - alpha) start + alpha end.

    landscape  the loss; the start is its solution
    end        (P,) weights of the other solution
    alphas     n numbers; 0 is the start, 1 the end, and beyond both the walk goes on
    measure    weights -> float; None: the loss

    With `statistics="batch"` batch norm is recomputed at every point; statistics interpolated or kept from one end
    would belong to neither network, and raise the loss in between.
    """
    measure, start = measure or landscape.loss, landscape.weights
    return np.array([measure(torch.lerp(start, end.to(start), float(alpha))) for alpha in alphas])


def surface(landscape, *, reach=1.0, points=15, seed=0):
    """The loss on a plane through the solution, along two random filter-normalised directions.

    reach    of the square to each side; 1 is as far as the weights are long
    points   a side, odd so that the middle is the solution itself
    seed     of the directions: the same for two networks of one kind, up to their own lengths
    """
    first, second = _random_direction(landscape, seed=2 * seed), _random_direction(landscape, seed=2 * seed + 1)
    x = np.linspace(-reach, reach, points)
    rows = [[landscape.loss(landscape.weights + float(a) * first + float(b) * second) for b in x] for a in x]
    return Surface(x, np.array(rows))


def _random_direction(landscape, *, seed=0):
    """(P,) of independent normal numbers, filter-normalised."""
    generator = torch.Generator().manual_seed(seed)
    raw = torch.randn(landscape.weights.shape, generator=generator).to(landscape.weights)
    return _filter_normalised(raw, landscape)


def _filter_normalised(direction, landscape):
    """(P,): every filter of `direction` as long as the same filter of the solution, so that a step of 1 is as large
    as the weights themselves, whatever their scale.

    A filter is what makes one output: w[i] of a convolution (out, in, h, w) or a linear layer (out, in). Biases and the
    parameters of batch norm have no filters; they are left where they are (0), as in the paper.
    """
    like = split(landscape.weights, landscape.shapes)
    pieces = [_scaled(piece, like[name]) for name, piece in split(direction, landscape.shapes).items()]
    return torch.cat([piece.reshape(-1) for piece in pieces])


def _scaled(direction, weight):
    if weight.dim() < 2:
        return torch.zeros_like(direction)
    each = tuple(range(1, weight.dim()))
    length = torch.linalg.vector_norm(direction, dim=each, keepdim=True).clamp_min(1e-30)
    return direction * torch.linalg.vector_norm(weight, dim=each, keepdim=True) / length
