"""The running average of the weights, by hand."""

import copy

import pytest
import torch
from made_up import network, shapes
from torch import nn
from torch.optim.swa_utils import update_bn

from labkit.methods.ema import Method
from labkit.models.cnn import cnn
from labkit.train import TrainConfig, accuracy, fit
from labkit.train.statistics import count_anew


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


def test_weights_that_stay_are_their_own_average_and_batch_norm_computes_with_statistics_of_the_average():
    images, model = shapes(), network()
    begin, x = copy.deepcopy(model), next(iter(images.batches(120)))[0]
    config = TrainConfig(batch=20, epochs=2, learning_rate=1e-12, weight_decay=0.0, ema=0.99)
    history = fit(model, images, config, device="cpu")
    for left, weight in zip(history.model.parameters(), begin.parameters(), strict=True):
        torch.testing.assert_close(left, weight)
    # six batches of 20 in another order: the mean of the means is that of all images
    torch.testing.assert_close(history.model[1].running_mean, begin[0](x).mean((0, 2, 3)))
    torch.testing.assert_close(
        history.model[1].running_var, begin[0](x).var((0, 2, 3)), rtol=0.02, atol=0
    )


@pytest.mark.parametrize("decay", [0.9, 0.99])
def test_an_average_is_tested_with_the_statistics_that_update_bn_counts(decay):
    images, test = shapes(), shapes(200, seed=1)
    config = TrainConfig(batch=20, epochs=4, learning_rate=0.05, ema=decay)
    history = fit(network(), (images, test), config, device="cpu")
    again = copy.deepcopy(history.model)
    update_bn((x for x, _ in images.batches(20, seed=5)), again)
    assert abs(accuracy(again, test) - history.accuracy[-1]) < 0.01
    for name, statistics in again.named_buffers():
        torch.testing.assert_close(history.model.get_buffer(name), statistics, rtol=0.02, atol=0.02)


def test_dropout_draws_no_number_where_statistics_are_counted_anew():
    model = network(dropout=0.5).train()
    before = torch.get_rng_state()
    count_anew(model, [torch.ones(4, 1, 8, 8)])
    assert torch.equal(torch.get_rng_state(), before)
    assert model.training and model[3].training


def test_statistics_of_instance_norm_are_counted_anew_too():
    model = nn.Sequential(nn.InstanceNorm2d(2, track_running_stats=True))
    model[0].running_mean.fill_(7)
    images = torch.tensor([[1.0, 3.0], [5.0, 9.0], [2.0, 4.0]])[:, :, None, None] * torch.tensor(
        [0.0, 2.0]
    )
    count_anew(model, images.split(1))
    # means of 1, 5, 2 and 3, 9, 4
    torch.testing.assert_close(model[0].running_mean, torch.tensor([8 / 3, 16 / 3]))
    assert model[0].momentum == 0.1


def test_an_error_amid_the_counting_leaves_the_model_as_it_was():
    model = network(dropout=0.5).train()
    wrong_channels = torch.ones(4, 3, 8, 8)
    with pytest.raises(RuntimeError):
        count_anew(model, [torch.ones(4, 1, 8, 8), wrong_channels])
    norms = [layer for layer in model.modules() if isinstance(layer, nn.BatchNorm2d)]
    assert norms and all(layer.momentum == 0.1 for layer in norms)
    assert not any(layer._forward_pre_hooks for layer in norms)
    assert all(layer.training for layer in model.modules())


class OwnNorm(nn.Module):
    """A norm whose running scale moves half of the way to that of each batch."""

    def __init__(self):
        super().__init__()
        self.register_buffer("scale", torch.zeros(()))

    def forward(self, x):
        if self.training:
            self.scale.lerp_(x.abs().mean(), 0.5)
        return x


def test_a_norm_of_ones_own_moves_its_statistics_on_to_the_averaged_weights():
    model = nn.Sequential(OwnNorm(), nn.Dropout(0.5)).eval()
    before = torch.get_rng_state()
    count_anew(model, [torch.ones(4), torch.full((4,), 3.0)])
    assert model[0].scale == (0 + 1) / 4 + 3 / 2
    assert torch.equal(torch.get_rng_state(), before)
    assert not model[0].training


class Frozen(nn.BatchNorm2d):
    """Batch norm that computes as when it is used, in training as well."""

    def train(self, mode=True):
        return super().train(False)


def test_batch_norm_that_stays_frozen_in_training_keeps_its_statistics():
    model = nn.Sequential(Frozen(2), nn.BatchNorm2d(2))
    model[0].running_mean.fill_(7)
    count_anew(model, [torch.ones(4, 2, 3, 3)])
    assert model[0].running_mean.tolist() == [7, 7]
    torch.testing.assert_close(model[1].running_mean, torch.full((2,), -6 / (1 + 1e-5) ** 0.5))


def test_frozen_statistics_stay_where_only_the_head_is_trained():
    model = network()
    history = fit(model, shapes(), TrainConfig(batch=20, ema=0.9, head_only=True), device="cpu")
    assert torch.equal(history.model[1].running_mean, torch.zeros(6))


def test_training_goes_on_with_an_average_as_with_the_network_that_was_given():
    settings = {"batch": 20, "ema": 0.9, "accumulate": 2, "norm_momentum": 0.4, "ghost_size": 5}
    given = network()
    left = fit(given, shapes(), TrainConfig(**settings), device="cpu").model
    assert str(left) == str(given)  # its layers, with the momentum they had
    assert all(weight.requires_grad for weight in left.parameters())
    again = fit(left, shapes(), TrainConfig(batch=20), device="cpu")
    assert again.model is None and again.steps == 6


def test_the_average_is_called_like_the_model_and_leaves_it_alone():
    model = cnn(4).eval()
    before, x = copy.deepcopy(model.state_dict()), torch.randn(2, 1, 28, 28)
    average = begun(model, 0.9).result(model).eval()
    assert torch.allclose(average(x), model(x))
    assert not any(weight.requires_grad for weight in average.parameters())
    assert all(torch.equal(model.state_dict()[name], before[name]) for name in before)
