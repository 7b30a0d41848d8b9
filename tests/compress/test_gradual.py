"""Gradual pruning: the schedule by hand, masks that no optimizer breaks, exact resume."""

import pytest
import torch
from made_up import network, shapes, weights

from labkit.compress import GradualPruning, apply_masks, sparsity_of
from labkit.compress.gradual import _cubic_sparsity
from labkit.compress.magnitude import magnitude_masks, masks_of
from labkit.errors import LabError
from labkit.methods import Hooks
from labkit.train import TrainConfig, accuracy, fit


def test_the_cubic_schedule_by_hand():
    assert _cubic_sparsity(0, 0.0, 0.8) == 0
    assert _cubic_sparsity(0.5, 0.0, 0.8) == pytest.approx(0.7)  # 0.8 - 0.8 / 8
    assert _cubic_sparsity(0.75, 0.0, 0.8) == pytest.approx(0.7875)  # 0.8 - 0.8 / 64
    assert _cubic_sparsity(1, 0.0, 0.8) == 0.8
    assert _cubic_sparsity(0.5, 0.4, 0.8) == pytest.approx(0.75)  # 0.8 - 0.4 / 8


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
    config = {
        "epochs": 4,
        "batch": 20,
        "learning_rate": 0.02,
        "optimizer": "sgd",
        "weight_decay": 0.05,
        **settings,
    }
    model, watch = network(seed), Watch(None)
    fit(
        model,
        images or shapes(),
        TrainConfig(**config),
        device="cpu",
        hooks={"prune": hook, "watch": watch},
    )
    return model, watch


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_the_sparsity_follows_the_schedule_and_momentum_and_weight_decay_revive_nothing(optimizer):
    _, watch = trained(GradualPruning(0.8, steps=12, every=2), optimizer=optimizer)
    wanted = [_cubic_sparsity(min(step - step % 2, 12) / 12, 0.0, 0.8) for step in range(1, 25)]
    assert watch.seen == pytest.approx(wanted, abs=0.5 / 150)  # whole weights of 150
    assert watch.revived == 0


def test_without_the_mask_momentum_does_revive_weights():
    class Once(Hooks):
        def begin(self, model):
            return apply_masks(model, magnitude_masks(model, 0.8))

    _, watch = trained(Once(None))
    assert watch.revived > 50


def test_a_pruned_network_still_learns():
    model, watch = trained(GradualPruning(0.6, steps=20, every=5), epochs=8)
    assert sparsity_of(model) == pytest.approx(0.6, abs=0.01)
    assert accuracy(model, shapes(40, seed=1), device="cpu") > 0.9
    assert watch.seen[-1] == watch.seen[20]


def test_a_resumed_pruning_ends_as_one_that_never_stopped(tmp_path):
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
        hooks = {"prune": GradualPruning(0.7, steps=20, every=3), **dict(stop)}
        fit(model, shapes(), config, device="cpu", checkpoint=checkpoint, hooks=hooks)
        return model

    whole = run(checkpoint=None)
    with pytest.raises(Stopped):
        run({"stop": Stops(None)})
    resumed = run(seed=5)
    assert torch.equal(weights(whole), weights(resumed))
    assert sparsity_of(resumed) == pytest.approx(0.7, abs=0.01)


def test_no_scope_is_refused_before_the_training():
    with pytest.raises(LabError, match="no scope"):
        GradualPruning(0.5, steps=10, scope="row")
