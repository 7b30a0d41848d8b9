"""Warm-up and decay, in numbers worked by hand."""

import pytest
import torch

from labkit.methods.decay import decay_factor
from labkit.methods.warmup import warmup_factor


def test_gradual_warm_up_is_a_straight_line_that_ends_at_1():
    assert [warmup_factor(step, 4, "gradual") for step in range(6)] == [0.25, 0.5, 0.75, 1, 1, 1]


def test_constant_warm_up_stays_low_and_jumps():
    assert [warmup_factor(step, 2, "constant") for step in range(4)] == [0.1, 0.1, 1, 1]


@pytest.mark.parametrize("kind", ["none", "constant", "gradual"])
def test_without_warm_up_steps_every_form_is_1(kind):
    assert warmup_factor(0, 0, kind) == 1
    assert warmup_factor(0, 5, "none") == 1


def test_cosine_decay_is_torchs():
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=20)
    for step in range(20):
        assert decay_factor(step, 20, "cosine") == pytest.approx(schedule.get_last_lr()[0])
        optimizer.step()
        schedule.step()


def test_step_decay_falls_to_a_tenth_after_30_60_and_80_of_90_epochs():
    epochs = (0, 29, 30, 59, 60, 79, 80, 89)
    wanted = [1, 1, 0.1, 0.1, 0.01, 0.01, 0.001, 0.001]
    assert [decay_factor(epoch, 90, "step") for epoch in epochs] == pytest.approx(wanted)


def test_constant_decay_is_none():
    assert {decay_factor(step, 10, "constant") for step in range(11)} == {1.0}
