"""LARS and LAMB: numbers worked by hand, timm's implementations, plain SGD and Adam as special
cases.
"""

import pytest
import torch
from timm.optim import Lamb, Lars
from torch import nn

from labkit.methods import lamb, lars
from labkit.methods.lamb import LAMB
from labkit.methods.lars import LARS, without_vectors
from labkit.train import TrainConfig


def layers():
    """Three layers with gradients: a matrix, a bias, a bias of zeros."""
    torch.manual_seed(0)
    weights = [torch.randn(4, 3), torch.randn(5), torch.zeros(2)]
    for weight in weights:
        weight.requires_grad_().grad = torch.randn_like(weight)
    return weights


def after(make, steps=1):
    """The layers after some steps along the same gradients."""
    weights = layers()
    optimizer = make(weights)
    for _ in range(steps):
        optimizer.step()
    return weights


def same(found, wanted):
    return all(
        torch.allclose(a, b, rtol=1e-5, atol=1e-6) for a, b in zip(found, wanted, strict=True)
    )


def one(weight, gradient):
    weight = torch.tensor(weight).requires_grad_()
    weight.grad = torch.tensor(gradient)
    return weight


def test_a_lars_step_worked_by_hand():
    weight = one([3.0, 4.0], [0.0, 2.0])  # norms 5 and 2
    LARS([weight], lr=1.0, momentum=0.0, weight_decay=0.1, trust=0.1, eps=0.0).step()
    # slope (0.3, 2.4); ratio 0.1 * 5 / (2 + 0.5) = 0.2
    assert weight.tolist() == pytest.approx([3 - 0.06, 4 - 0.48])


def test_the_second_lars_step_carries_momentum():
    weight = one([3.0, 4.0], [0.0, 2.0])
    optimizer = LARS([weight], lr=1.0, momentum=0.5, trust=0.1, eps=0.0)
    optimizer.step()  # ratio 0.1 * 5 / 2; velocity (0, 0.5); weight (3, 3.5)
    weight.grad = torch.tensor([1.0, 0.0])
    optimizer.step()  # ratio 0.1 * sqrt(9 + 12.25) / 1; velocity (0.46098, 0.25)
    assert weight.tolist() == pytest.approx([3 - 0.460977, 3.25], abs=1e-5)


def test_a_lamb_step_worked_by_hand():
    weight = one([3.0, 4.0], [0.5, -0.5])
    LAMB([weight], lr=0.1, weight_decay=0.1, eps=0.0).step()
    # at the first step m / sqrt(v) is the sign: (1, -1); with decay (1.3, -0.6), norm 1.431782;
    # ratio 5 / 1.431782
    stretch = 0.1 * 5 / 1.431782
    assert weight.tolist() == pytest.approx([3 - stretch * 1.3, 4 + stretch * 0.6], abs=1e-5)


@pytest.mark.parametrize("foreach", [False, True])
@pytest.mark.parametrize("steps", [1, 3])
def test_lars_is_timms(steps, foreach):
    settings = {"lr": 0.5, "momentum": 0.9, "weight_decay": 1e-2}
    wanted = after(
        lambda weights: Lars(weights, trust_coeff=1e-2, foreach=foreach, **settings), steps
    )
    found = after(lambda weights: LARS(weights, trust=1e-2, **settings), steps)
    # without the bias of zeros, whose first step is timm's times the trust
    assert same(found[:2], wanted[:2])


def test_a_tensor_of_length_0_takes_a_lars_step_of_sgd_at_rate_times_trust():
    weight = one([0.0, 0.0], [3.0, -4.0])
    LARS([weight], lr=2.0, momentum=0.0, trust=0.1).step()
    assert weight.tolist() == pytest.approx([-0.6, 0.8])


@pytest.mark.parametrize("foreach", [False, True])
@pytest.mark.parametrize("steps", [1, 3])
def test_lamb_is_timms_without_its_clipping(steps, foreach):
    settings = {"lr": 0.05, "betas": (0.8, 0.99), "weight_decay": 1e-2}
    wanted = after(
        lambda weights: Lamb(weights, max_grad_norm=None, foreach=foreach, **settings), steps
    )
    assert same(after(lambda weights: LAMB(weights, **settings), steps), wanted)


def unadapted(weights):
    return [{"params": weights, "adapt": False}]


def test_without_adaptation_lars_is_sgd():
    settings = {"lr": 0.1, "momentum": 0.9, "weight_decay": 1e-2}
    found = after(lambda weights: LARS(unadapted(weights), trust=1.0, **settings), 3)
    assert same(found, after(lambda weights: torch.optim.SGD(weights, **settings), 3))


def test_without_adaptation_and_decay_lamb_is_adam():
    found = after(lambda weights: LAMB(unadapted(weights), lr=0.1, weight_decay=0.0, eps=1e-8), 3)
    assert same(found, after(lambda weights: torch.optim.Adam(weights, lr=0.1, eps=1e-8), 3))


@pytest.mark.parametrize(
    "make", [lambda w: LARS(w, lr=0.1, eps=0.0), lambda w: LAMB(w, lr=0.1, eps=0.0)]
)
def test_the_length_of_a_gradient_does_not_matter(make):
    short, long = one([3.0, 4.0], [0.1, 0.2]), one([3.0, 4.0], [100.0, 200.0])
    make([short]).step()
    make([long]).step()
    assert torch.allclose(short, long)


@pytest.mark.parametrize("make", [lambda w: LARS(w, lr=0.1), lambda w: LAMB(w, lr=0.1)])
def test_a_layer_of_zeros_and_one_without_gradient_do_no_harm(make):
    zeros, still = one([0.0, 0.0], [1.0, 2.0]), torch.ones(2, requires_grad=True)
    make([zeros, still]).step()
    assert zeros.isfinite().all() and (zeros != 0).all()
    assert torch.equal(still, torch.ones(2))


@pytest.mark.parametrize("make", [lambda w: LARS(w, lr=0.1), lambda w: LAMB(w, lr=0.1)])
def test_a_stored_state_goes_on_exactly(make):
    whole = after(make, 4)
    weights = layers()
    first = make(weights)
    first.step()
    first.step()
    second = make(weights)
    second.load_state_dict(first.state_dict())
    second.step()
    second.step()
    assert all(torch.equal(a, b) for a, b in zip(weights, whole, strict=True))


@pytest.mark.parametrize("make", [lambda w: LARS(w, lr=0.1), lambda w: LAMB(w, lr=0.1)])
def test_the_gradients_stay_as_they_are(make):
    weights = layers()
    before = [weight.grad.clone() for weight in weights]
    make(weights).step()
    assert all(torch.equal(weight.grad, old) for weight, old in zip(weights, before, strict=True))


def of_config(optimizer, rate):
    return TrainConfig(optimizer=optimizer, learning_rate=rate, momentum=0.9, weight_decay=0.1)


def shift_after(make, steps=10):
    """A shift of batch norm that began at 0, and a matrix beside it, after some steps along the
    same gradients.
    """
    torch.manual_seed(0)
    named = [("0.weight", torch.randn(4, 3)), ("1.bias", torch.zeros(4))]
    for _, weight in named:
        weight.requires_grad_().grad = torch.randn_like(weight)
    optimizer = make(named)
    for _ in range(steps):
        optimizer.step()
    return named[1][1].detach()


def test_in_a_training_with_lars_a_shift_that_begins_at_0_takes_the_steps_of_sgd_at_rate_times_trust():
    found = shift_after(lambda named: lars.make(named, of_config("lars", 20.0)), 48)
    wanted = shift_after(lambda named: torch.optim.SGD(named, lr=20 * 1e-3, momentum=0.9), 48)
    assert torch.allclose(found, wanted, rtol=1e-5)


def test_in_a_training_with_lamb_a_shift_that_begins_at_0_takes_the_steps_of_adam():
    found = shift_after(lambda named: lamb.make(named, of_config("lamb", 0.01)))
    wanted = shift_after(lambda named: torch.optim.Adam(named, lr=0.01, eps=1e-6))
    assert torch.allclose(found, wanted, rtol=1e-5)


@pytest.mark.parametrize("method", [lars, lamb])
def test_vectors_are_neither_adapted_nor_decayed_and_matrices_are_both(method):
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(8, 3))
    groups = method.make(model.named_parameters(), of_config("lars", 1.0)).param_groups
    found = {
        weight.ndim > 1: (group["adapt"], group["weight_decay"])
        for group in groups
        for weight in group["params"]
    }
    assert found == {True: (True, 0.1), False: (False, 0.0)}
    assert sum(len(group["params"]) for group in groups) == len(list(model.parameters()))


def test_a_network_without_vectors_has_one_group():
    assert len(without_vectors(nn.Linear(3, 2, bias=False).named_parameters())) == 1
