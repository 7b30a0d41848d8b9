"""Directions in which to walk through the space of weights.

Source  Li, Xu, Taylor, Studer, Goldstein 2018, Visualizing the loss landscape of neural nets, arXiv:1712.09913
"""

import torch

from labkit.landscape.loss import split


def random_direction(landscape, *, seed=0):
    """(P,) of independent normal numbers, filter-normalised."""
    generator = torch.Generator().manual_seed(seed)
    raw = torch.randn(landscape.weights.shape, generator=generator).to(landscape.weights)
    return filter_normalised(raw, landscape)


def filter_normalised(direction, landscape):
    """(P,): every filter of `direction` as long as the same filter of the solution, so that a step of 1 is as large
    as the weights themselves, whatever their scale.

    A filter is what makes one output: w[i] of a convolution (out, in, h, w) or a linear layer (out, in). Biases and the
    parameters of batch norm have no filters; they are left where they are (0), as in the paper.
    """
    like = split(landscape.weights, landscape.shapes)
    pieces = [scaled(piece, like[name]) for name, piece in split(direction, landscape.shapes).items()]
    return torch.cat([piece.reshape(-1) for piece in pieces])


def scaled(direction, weight):
    if weight.dim() < 2:
        return torch.zeros_like(direction)
    each = tuple(range(1, weight.dim()))
    length = torch.linalg.vector_norm(direction, dim=each, keepdim=True).clamp_min(1e-30)
    return direction * torch.linalg.vector_norm(weight, dim=each, keepdim=True) / length
