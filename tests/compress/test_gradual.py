"""Gradual and movement pruning: the schedule by hand, masks that no optimizer breaks, exact resume."""

import pytest
import torch
from made_up import network, shapes, weights
from torch import nn

from labkit.compress import GradualPruning, KeptMask, MovementPruning, apply_masks, prunable, sparsity_of
from labkit.compress.gradual import _cubic_sparsity
from labkit.compress.magnitude import magnitude_masks, masks_of
from labkit.errors import LabError
from labkit.methods import Hooks
from labkit.train import TrainConfig, accuracy, fit

METHODS = {"gradual": GradualPruning, "movement": MovementPruning}


def test_the_cubic_schedule_by_hand():
    schedule = {"steps": 100, "final": 0.8, "start": 10}
    assert [_cubic_sparsity(step, **schedule) for step in (0, 10)] == [0, 0]
    assert _cubic_sparsity(60, **schedule) == pytest.approx(0.7)  # 0.8 - 0.8 / 8
    assert _cubic_sparsity(85, **schedule) == pytest.approx(0.7875)  # 0.8 - 0.8 / 64
    assert [_cubic_sparsity(step, **schedule) for step in (110, 500)] == [0.8, 0.8]
    assert _cubic_sparsity(60, **schedule, initial=0.4) == pytest.approx(0.75)  # 0.8 - 0.4 / 8


class Watch(Hooks):
    """Notes the sparsity after every step, behind the hook that prunes."""

    def begin(self, model):
        self.seen, self.revived, self.masks = [], 0, masks_of(model)
        return model

    def after_update(self, model):
        self.seen.append(sparsity_of(model))
        now = masks_of(model)
        self.revived += sum(int((now[name] & ~self.masks[name]).sum()) for name in now)
        self.masks = now


def trained(hook, images=None, seed=0, **settings):
    config = {"epochs": 4, "batch": 20, "learning_rate": 0.02, "optimizer": "sgd", "weight_decay": 0.05, **settings}
    model, watch = network(seed), Watch(None)
    fit(model, images or shapes(), TrainConfig(**config), device="cpu", hooks={"prune": hook, "watch": watch})
    return model, watch


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_the_sparsity_follows_the_schedule_and_momentum_and_weight_decay_revive_nothing(optimizer):
    _, watch = trained(GradualPruning(0.8, steps=12, start=4, every=2), optimizer=optimizer)
    wanted = [_cubic_sparsity(step - step % 2, steps=12, start=4, final=0.8) for step in range(1, 25)]
    assert watch.seen == pytest.approx(wanted, abs=0.5 / 150)  # whole weights of 150
    assert watch.revived == 0


def test_without_the_mask_momentum_does_revive_weights():
    class Once(Hooks):
        def begin(self, model):
            return apply_masks(model, magnitude_masks(model, 0.8))

    _, watch = trained(Once(None))
    assert watch.revived > 50


def test_a_kept_mask_keeps_exactly_the_zeros_of_the_beginning():
    model = apply_masks(network(), magnitude_masks(network(), 0.7))
    masks, before = masks_of(model), weights(model)
    config = TrainConfig(epochs=2, batch=20, optimizer="sgd", learning_rate=0.1)
    fit(model, shapes(), config, device="cpu", hooks={"prune": KeptMask()})
    assert all(torch.equal(mask, masks[name]) for name, mask in masks_of(model).items())
    assert not torch.equal(weights(model), before)


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
def test_a_pruned_network_still_learns(method):
    model, watch = trained(method(0.6, steps=20, every=5), epochs=8)
    assert sparsity_of(model) == pytest.approx(0.6, abs=0.01)
    assert accuracy(model, shapes(40, seed=1), device="cpu") > 0.9
    assert watch.seen[-1] == watch.seen[20]


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
def test_a_resumed_pruning_ends_as_one_that_never_stopped(method, tmp_path):
    class Stopped(Exception):
        pass

    class Stops(Hooks):
        step = 0

        def after_update(self, model):
            self.step += 1
            if self.step == 14:  # in the third of four epochs of six steps
                raise Stopped

    def run(stop=(), seed=0, checkpoint=tmp_path / "c.json"):
        model = network(seed)
        config = TrainConfig(epochs=4, batch=20, learning_rate=0.02)
        hooks = {"prune": method(0.7, steps=20, every=3), **dict(stop)}
        fit(model, shapes(), config, device="cpu", checkpoint=checkpoint, hooks=hooks)
        return model

    whole = run(checkpoint=None)
    with pytest.raises(Stopped):
        run({"stop": Stops(None)})
    resumed = run(seed=5)
    assert torch.equal(weights(whole), weights(resumed))
    assert sparsity_of(resumed) == pytest.approx(0.7, abs=0.01)


def step_of(hook, model, optimizer, gradient):
    model.weight.grad = torch.tensor([gradient])
    hook.before_update(model)
    optimizer.step()
    hook.after_update(model)


def test_movement_scores_by_hand_and_a_masked_weight_comes_back():
    model = nn.Linear(4, 1, bias=False)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[5.0, 1.0, -1.0, 2.0]]))
    hook, optimizer = MovementPruning(0.5, steps=2, every=1, start=0), torch.optim.SGD(model.parameters(), lr=0.1)
    hook.begin(model)
    step_of(hook, model, optimizer, [1.0, -1.0, -1.0, 0.5])  # scores: -5, 1, -1, -1; cubic: 0.4375 of 4 go
    assert hook.scores["weight"].tolist() == [[-5, 1, -1, -1]]
    assert not hook.masks["weight"][0, 0], "the largest weight moves towards 0 and goes"
    assert model.weight[0, 0] == 0
    step_of(hook, model, optimizer, [-3.0, 0.0, -1.0, 0.0])  # of 4.9: scores 9.7, 1, -1.9, -1 (-1 - 0.9)
    assert hook.scores["weight"][0, 0] == pytest.approx(-5 + 3 * 4.9)
    assert hook.masks["weight"].tolist() == [[True, True, False, False]]
    assert model.weight[0].tolist() == pytest.approx([4.9, 1.1, 0, 0])


def test_movement_forgets_large_weights_that_the_task_moves_to_zero():
    magnitude, _ = trained(GradualPruning(0.8, steps=18, every=3))
    movement, _ = trained(MovementPruning(0.8, steps=18, every=3))
    by_size, by_movement = (torch.cat([w[w != 0] for w in prunable(model).values()]) for model in (magnitude, movement))
    assert by_movement.abs().min() < by_size.abs().min()


def test_no_scope_is_refused_before_the_training():
    with pytest.raises(LabError, match="no scope"):
        GradualPruning(0.5, steps=10, scope="row")
    with pytest.raises(LabError, match="no scope"):
        MovementPruning(0.5, steps=10, scope="lamp")


BAD = {"no steps": {"steps": 0}, "too much": {"sparsity": 1.2}, "never": {"every": 0}, "before": {"start": -1}}


@pytest.mark.parametrize("settings", BAD.values(), ids=BAD)
@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
def test_no_schedule_is_refused(method, settings):
    with pytest.raises(LabError, match="no schedule"):
        method(**{"sparsity": 0.5, "steps": 10, **settings})
