"""SAM against its definition."""

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from labkit.methods.sam import sam_step


def problem():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3)), torch.randn(20, 5), torch.arange(20) % 3


def flat(tensors):
    return torch.cat([tensor.detach().flatten() for tensor in tensors])


def test_it_steps_along_the_gradient_of_the_point_rho_further_up():
    model, x, y = problem()
    start = flat(model.parameters())
    slope = flat(torch.autograd.grad(cross_entropy(model(x), y), list(model.parameters())))
    nn.utils.vector_to_parameters(start + 0.3 * slope / slope.norm(), model.parameters())
    there = flat(torch.autograd.grad(cross_entropy(model(x), y), list(model.parameters())))
    nn.utils.vector_to_parameters(start.clone(), model.parameters())
    sam_step(model, torch.optim.SGD(model.parameters(), lr=0.5), x, y, rho=0.3)
    torch.testing.assert_close(flat(model.parameters()), start - 0.5 * there)


def test_without_a_climb_it_is_an_ordinary_step_and_returns_the_loss():
    model, x, y = problem()
    start, loss = flat(model.parameters()), cross_entropy(model(x), y)
    slope = flat(torch.autograd.grad(loss, list(model.parameters())))
    found = sam_step(model, torch.optim.SGD(model.parameters(), lr=0.5), x, y, rho=0.0)
    assert float(found) == pytest.approx(float(loss.detach()))
    torch.testing.assert_close(flat(model.parameters()), start - 0.5 * slope)
