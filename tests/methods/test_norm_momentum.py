"""The momentum of batch norm's running averages: by hand, and in a training."""

import pytest
import torch
from made_up import shapes
from torch import nn

from labkit.methods.ghost_batch_norm import GhostBatchNorm2d
from labkit.methods.norm_momentum import Method
from labkit.models.cnn import cnn
from labkit.train import TrainConfig, fit


def test_running_averages_worked_by_hand():
    layer = Method(0.4).begin(nn.BatchNorm2d(1))
    layer.train()(torch.tensor([1.0, 3.0]).view(2, 1, 1, 1))  # mean 2, unbiased variance 2
    assert layer.running_mean.item() == pytest.approx(0.4 * 2)
    assert layer.running_var.item() == pytest.approx(0.6 * 1 + 0.4 * 2)


def test_all_kinds_of_batch_norm_have_it_and_share_their_tensors_with_the_model():
    model = nn.Sequential(
        nn.BatchNorm1d(2), nn.BatchNorm2d(2), GhostBatchNorm2d(2, 4), nn.Linear(2, 2)
    )
    twin = Method(0.25).begin(model)
    assert [layer.momentum for layer in twin[:3]] == [0.25] * 3
    assert [layer.momentum for layer in model[:3]] == [0.1] * 3
    pairs = zip(
        [*model.parameters(), *model.buffers()], [*twin.parameters(), *twin.buffers()], strict=True
    )
    assert all(a is b for a, b in pairs)


def test_a_training_learns_the_same_and_its_averages_are_of_later_batches():
    images, left = shapes(80), {}
    for momentum in (None, 1.0):
        torch.manual_seed(0)
        model = cnn(4)
        losses = fit(
            model, images, TrainConfig(batch=20, norm_momentum=momentum), device="cpu"
        ).losses
        left[momentum] = losses, model
    assert left[None][0] == left[1.0][0]  # steps do not see the running averages
    slow, last = (
        [m.running_var for m in left[key][1].modules() if isinstance(m, nn.BatchNorm2d)]
        for key in left
    )
    assert all(not torch.allclose(a, b, rtol=0.05) for a, b in zip(slow, last, strict=True))
