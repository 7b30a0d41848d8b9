"""Schedule-free SGD: its equations by hand, what it leaves behind, and a training that goes on."""

import pytest
import torch
from made_up import network, shapes, weights

from labkit.methods.schedule_free import ScheduleFree
from labkit.train import TrainConfig, accuracy, fit


def test_two_steps_are_those_worked_by_hand():
    weight = torch.nn.Parameter(torch.tensor([1.0]))
    optimizer = ScheduleFree([weight], lr=0.5, momentum=0.8, weight_decay=0.2)
    weight.grad = torch.tensor([2.0])
    # z = 1 - 0.5 * (2 + 0.2 * 1) = -0.1; x = -0.1, for the first step's share is 1; y = -0.1
    optimizer.step()
    assert weight.item() == pytest.approx(-0.1)
    optimizer.param_groups[0]["lr"] = 1.0
    weight.grad = torch.tensor([-3.0])
    # z = -0.1 - (-3 - 0.02) = 2.92; x = -0.1 + 3.02 * 1 / 1.25 = 2.316; y = 0.2 * z + 0.8 * x
    optimizer.step()
    assert weight.item() == pytest.approx(0.2 * 2.92 + 0.8 * 2.316)
    model = torch.nn.ParameterList([weight])
    assert optimizer.result(model)[0].item() == pytest.approx(2.316)
    assert model[0].item() == pytest.approx(0.2 * 2.92 + 0.8 * 2.316)


def test_at_a_constant_rate_x_is_the_plain_mean_of_all_z():
    weight = torch.nn.Parameter(torch.zeros(3))
    optimizer, random, all_z = ScheduleFree([weight], lr=0.1), torch.Generator().manual_seed(0), []
    for _ in range(7):
        weight.grad = torch.randn(3, generator=random)
        optimizer.step()
        all_z.append(optimizer.state[weight]["z"].clone())
    torch.testing.assert_close(optimizer.state[weight]["x"], torch.stack(all_z).mean(0))


def test_its_name_switches_it_on_and_the_mean_is_what_is_tested_and_left():
    model, images = network(), shapes(40)
    config = TrainConfig(
        batch=20, epochs=12, optimizer="schedule_free", schedule="constant", learning_rate=0.3
    )
    history = fit(model, (images, images), config, device="cpu")
    assert history.losses[-1] < history.losses[0] / 2
    assert history.accuracy[-1] == accuracy(history.model, images, device="cpu")
    moved = [
        (a - b).abs().max()
        for a, b in zip(history.model.parameters(), model.parameters(), strict=True)
    ]
    assert max(moved) > 0


def test_a_training_that_was_stopped_goes_on_as_if_it_had_not_been(tmp_path, monkeypatch):
    config = TrainConfig(epochs=4, batch=20, optimizer="schedule_free", schedule="constant")
    model, path = network(), tmp_path / "stopped.pt"
    whole = fit(model, shapes(40), config, device="cpu")
    step, done = ScheduleFree.step, []

    def stops_in_the_third_epoch(self):
        done.append(step(self))
        if len(done) == 5:
            raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(ScheduleFree, "step", stops_in_the_third_epoch)
        fit(network(), shapes(40), config, device="cpu", checkpoint=path)
    again = fit(network(), shapes(40), config, device="cpu", checkpoint=path)
    assert again.restored == 2
    assert torch.equal(weights(again.model), weights(whole.model))


def test_frozen_weights_stay():
    frozen, weight = torch.nn.Parameter(torch.ones(2)), torch.nn.Parameter(torch.ones(2))
    optimizer = ScheduleFree([frozen, weight], lr=0.1)
    weight.grad = torch.ones(2)
    optimizer.step()
    left = optimizer.result(torch.nn.ParameterList([frozen, weight]))
    torch.testing.assert_close(left[0], torch.ones(2))
    torch.testing.assert_close(left[1], torch.full((2,), 0.9))
