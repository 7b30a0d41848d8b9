"""How steeply the loss can rise in a small box around a solution.

Source  Keskar, Mudigere, Nocedal, Smelyanskiy, Tang 2016, arXiv:1609.04836 (Metric 2.1, with A the identity)
"""

from typing import NamedTuple

import torch


class Sharpness(NamedTuple):
    """value: 100 (highest - loss) / (1 + loss); weights: where in the box the loss is highest, (P,)."""

    value: float
    loss: float
    highest: float
    weights: torch.Tensor


def sharpness(landscape, *, epsilon=1e-3, steps=8, starts=2, seed=0):
    """The largest rise of the loss found in the box |change of w| <= epsilon (|w| + 1), in percent of 1 + loss.

    epsilon  half-width of the box relative to |w| + 1; the paper takes 1e-3 and 5e-4
    steps    gradient steps of each start
    starts   the solution itself, then random corners of the box; the highest point of all counts
    returns  a `Sharpness`; a lower bound, as any search for a maximum

    A step goes to the corner of the box to which the gradient points, w0 + width * sign(gradient). Where the loss is
    convex every step climbs (it lies above its tangent, and no point of the box is higher on the tangent than that
    corner), and the maximum lies at a corner. The paper runs ten iterations of L-BFGS-B instead.
    """
    center = landscape.weights
    width = epsilon * (center.abs() + 1)
    base, slope = landscape.gradient()
    best = (base, center)
    generator = torch.Generator().manual_seed(seed)
    for start in range(starts):
        if start or not slope.any():
            slope = torch.randn(center.shape, generator=generator).to(center)
        best = max(best, _climb(landscape, center, width, slope, steps), key=lambda found: found[0])
    highest, weights = best
    return Sharpness(100 * (highest - base) / (1 + base), base, highest, weights)


def _climb(landscape, center, width, slope, steps):
    """(loss, weights) of the highest corner on the way, beginning with the one to which `slope` points."""
    found = []
    for _ in range(steps):
        corner = center + width * slope.sign()
        loss, slope = landscape.gradient(corner)
        found.append((loss, corner))
        if torch.equal(center + width * slope.sign(), corner):
            break
    return max(found, key=lambda pair: pair[0])
