"""The running average of the weights, against torch's own and by hand."""

import copy

import pytest
import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from labkit.methods.ema import EMA
from labkit.models.cnn import cnn


def moved(model):
    """The model after something like a training step."""
    with torch.no_grad():
        for weight in model.parameters():
            weight += torch.randn_like(weight)
    model.train()(torch.randn(4, 1, 28, 28))


def test_the_average_is_torchs():
    torch.manual_seed(0)
    model = cnn(4)
    ours, theirs = EMA(model, 0.9), AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9))
    theirs.update_parameters(model)  # torch's first update copies, ours starts as the copy
    for _ in range(3):
        moved(model)
        ours.update(model)
        theirs.update_parameters(model)
    for a, b in zip(ours.model.parameters(), theirs.module.parameters(), strict=True):
        assert torch.allclose(a, b, atol=1e-6)


def test_an_average_worked_by_hand():
    model = nn.Linear(1, 1, bias=False)
    nn.init.constant_(model.weight, 1.0)
    average = EMA(model, 0.75)
    nn.init.constant_(model.weight, 5.0)
    average.update(model)
    assert average.model.weight.item() == pytest.approx(0.75 * 1 + 0.25 * 5)


def test_running_statistics_and_counts_are_taken_over():
    model = cnn(4)
    average = EMA(model, 0.999)
    moved(model)
    average.update(model)
    assert all(torch.equal(a, b) for a, b in zip(average.model.buffers(), model.buffers(), strict=True))


def test_the_average_is_called_like_the_model_and_leaves_it_alone():
    model = cnn(4).eval()
    before, x = copy.deepcopy(model.state_dict()), torch.randn(2, 1, 28, 28)
    average = EMA(model, 0.9).eval()
    assert torch.equal(average(x), model(x))
    assert not any(weight.requires_grad for weight in average.parameters())
    assert all(torch.equal(model.state_dict()[name], before[name]) for name in before)
