"""The learning rate of each step, against torch's own schedules."""

import math

import pytest
import torch

from labkit.train import TrainConfig, make_optimizer
from labkit.train.optimizers import set_rate


def rates(config, steps):
    optimizer = make_optimizer([("w", torch.nn.Parameter(torch.ones(2)))], config)
    for step in range(steps):
        set_rate(optimizer, config, step=step, steps=steps)
        yield optimizer.param_groups[0]


@pytest.mark.parametrize("steps", [2, 3, 10, 157])
@pytest.mark.parametrize(
    ("optimizer", "momentum"),
    [("adamw", lambda g: g["betas"][0]), ("sgd", lambda g: g["momentum"])],
)
def test_one_cycle_is_that_of_torch(optimizer, momentum, steps):
    config = TrainConfig(optimizer=optimizer, learning_rate=0.3)
    other = make_optimizer([("w", torch.nn.Parameter(torch.ones(2)))], config)
    schedule = torch.optim.lr_scheduler.OneCycleLR(other, 0.3, total_steps=steps)
    for group in rates(config, steps):
        theirs = other.param_groups[0]
        assert group["lr"] == pytest.approx(theirs["lr"], rel=1e-9)
        assert momentum(group) == pytest.approx(momentum(theirs), rel=1e-9)
        other.step()
        if schedule.last_epoch < steps - 1:
            schedule.step()


def test_one_cycle_of_a_single_step_has_a_rate():
    assert 0 < next(rates(TrainConfig(learning_rate=0.3), 1))["lr"] <= 0.3


def test_a_constant_rate_stays():
    assert {
        group["lr"] for group in rates(TrainConfig(schedule="constant", learning_rate=0.5), 10)
    } == {0.5}


def test_after_a_gradual_warm_up_the_cosine_begins_at_its_peak():
    config = TrainConfig(
        schedule="cosine", warmup="gradual", warmup_epochs=1, epochs=5, learning_rate=1.0
    )
    found = [group["lr"] for group in rates(config, 50)]
    assert found[:10] == sorted(found[:10])
    assert found[10] == pytest.approx(1.0)
    assert found[30] == pytest.approx((1 + math.cos(math.pi / 2)) / 2)
    assert found[10:] == sorted(found[10:], reverse=True)
