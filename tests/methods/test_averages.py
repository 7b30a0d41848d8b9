"""The running average of the weights, by hand."""

import copy

import pytest
import torch
from torch import nn

from labkit.methods.ema import Method
from labkit.models.cnn import cnn


def begun(model, decay):
    method = Method(decay)
    assert method.begin(model) is model
    return method


def test_an_average_worked_by_hand():
    model = nn.Linear(1, 1, bias=False)
    nn.init.constant_(model.weight, 1.0)
    method = begun(model, 0.75)
    for weight in (5.0, 9.0):
        nn.init.constant_(model.weight, weight)
        method.after_update(model)
    [averaged] = method.result(model).parameters()
    assert averaged.item() == pytest.approx(0.75 * (0.75 * 1 + 0.25 * 5) + 0.25 * 9)


def test_running_statistics_and_counts_are_taken_over():
    model = cnn(4)
    method = begun(model, 0.999)
    with torch.no_grad():
        model.train()(torch.randn(4, 1, 28, 28))
    method.after_update(model)
    averaged = dict(method.result(model).module.named_buffers())
    assert averaged and all(torch.equal(averaged[name], buffer) for name, buffer in model.named_buffers())


def test_the_average_is_called_like_the_model_and_leaves_it_alone():
    model = cnn(4).eval()
    before, x = copy.deepcopy(model.state_dict()), torch.randn(2, 1, 28, 28)
    average = begun(model, 0.9).result(model).eval()
    assert torch.allclose(average(x), model(x))
    assert not any(weight.requires_grad for weight in average.parameters())
    assert all(torch.equal(model.state_dict()[name], before[name]) for name in before)
