"""Multiply-adds against counts by hand."""

import pytest
import torch
from torch import nn

from labkit.measure import multiply_adds


@pytest.mark.parametrize(
    ("layer", "shape", "wanted"),
    [
        (nn.Linear(20, 30), (1, 20), 20 * 30),
        (nn.Linear(20, 30), (5, 20), 5 * 20 * 30),
        (nn.Conv2d(3, 8, 5, padding=2), (1, 3, 10, 12), 10 * 12 * 8 * 3 * 25),
        (nn.Conv2d(4, 8, 3, stride=2), (1, 4, 9, 9), 4 * 4 * 8 * 4 * 9),
        (nn.Conv2d(6, 12, 3, padding=1, groups=3), (1, 6, 7, 7), 7 * 7 * 12 * 2 * 9),
        (nn.Conv2d(6, 6, 3, padding=1, groups=6), (2, 6, 7, 7), 2 * 7 * 7 * 6 * 9),
        (nn.Sequential(nn.BatchNorm2d(3), nn.ReLU(), nn.MaxPool2d(2)), (2, 3, 8, 8), 0),
    ],
)
def test_layers(layer, shape, wanted):
    assert multiply_adds(layer, torch.randn(shape)) == wanted


@pytest.mark.parametrize("training", [True, False])
def test_the_model_is_left_as_it_was(training):
    model = nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 2)).train(training)
    kept = {name: value.clone() for name, value in model.state_dict().items()}
    multiply_adds(model, torch.randn(3, 4))
    assert model.training is training
    assert all(torch.equal(kept[name], value) for name, value in model.state_dict().items())
