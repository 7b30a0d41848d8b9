"""The loss along a line from one solution to another, and on a plane around one."""

from typing import NamedTuple

import numpy as np
import torch

from labkit.landscape.directions import random_direction


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
    first, second = random_direction(landscape, seed=2 * seed), random_direction(landscape, seed=2 * seed + 1)
    x = np.linspace(-reach, reach, points)
    rows = [[landscape.loss(landscape.weights + float(a) * first + float(b) * second) for b in x] for a in x]
    return Surface(x, np.array(rows))
