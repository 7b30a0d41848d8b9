"""Lesson 05: a sharpness that no rewriting of a network changes, where the eigenvalue of the Hessian does."""

import pytest
import torch
from torch.nn import functional as F

from labkit.lesson.exercises.l05_batch_size_and_minima import power_iteration, relative_product

SIZES = [(6, 5), (1, 5), (1, 5), (5, 4), (1, 4)]  # matrix, scale and shift of batch norm, matrix, bias


def pieces(weights):
    found = weights.split([rows * columns for rows, columns in SIZES], dim=1)
    return [piece.view(-1, *shape) for piece, shape in zip(found, SIZES, strict=True)]


def outputs(weights, images):
    first, scale, shift, last, bias = pieces(weights)
    x = images @ first
    x = (x - x.mean(1, keepdim=True)) / x.std(1, keepdim=True, correction=0)  # no eps: an exact rewriting
    return F.relu(x * scale + shift) @ last + bias


def hessian_product(weights, images, labels):
    point = weights.detach().requires_grad_()
    found = outputs(point, images).flatten(0, 1)
    loss = F.cross_entropy(found, labels.repeat(len(weights)), reduction="sum")
    (slope,) = torch.autograd.grad(loss, point, create_graph=True)
    return lambda v: torch.autograd.grad((slope * v).sum(), point, retain_graph=True)[0]


def rewritten(weights, place):
    """The same functions: the matrix before batch norm smaller, or a factor moved through the ReLU."""
    parts = [piece.clone() for piece in pieces(weights)]
    for number, factor in {"batch norm": {0: 0.1}, "ReLU": {1: 3.0, 2: 3.0, 3: 1 / 3}}[place].items():
        parts[number] *= factor
    return torch.cat([part.flatten(1) for part in parts], 1)


@pytest.mark.parametrize("place", ["batch norm", "ReLU"])
def test_a_rewriting_changes_the_largest_eigenvalue_and_leaves_the_one_in_relative_steps(place):
    random = torch.Generator().manual_seed(0)
    total = sum(rows * columns for rows, columns in SIZES)
    weights, begin = torch.randn(2, 3, total, generator=random, dtype=torch.float64)
    images = torch.randn(30, 6, generator=random, dtype=torch.float64)
    labels = torch.randint(4, (30,), generator=random)
    other = rewritten(weights, place)
    torch.testing.assert_close(outputs(other, images), outputs(weights, images))

    def largest(at, relative):
        product = hessian_product(at, images, labels)
        return power_iteration(relative_product(product, at) if relative else product, begin, 300)[0]

    torch.testing.assert_close(largest(other, True), largest(weights, True), rtol=1e-6, atol=0)
    assert ((largest(other, False) / largest(weights, False)).abs().log().abs() > 0.1).all()
