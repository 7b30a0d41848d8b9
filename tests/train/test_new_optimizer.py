"""A new optimizer is one file and one name: the config, the loop and the checkpoint pick it up
by themselves.
"""

import pytest
import torch
from made_up import network, shapes, weights
from torch import nn

from labkit import methods
from labkit.errors import LabError
from labkit.train import TrainConfig, fit
from labkit.train.optimizers import factory

MATRICES = '''
"""Made up: the sign of the momentum; the first and the last layer take a step of SGD."""

import torch


class Signed(torch.optim.Optimizer):
    def __init__(self, named_parameters, lr, momentum):
        weights = list(named_parameters)
        ends = {weights[0][0], weights[-1][0]}
        groups = [
            {"params": [(name, weight) for name, weight in weights if (name in ends) == plain], "plain": plain}
            for plain in (True, False)
        ]
        super().__init__(groups, {"lr": lr, "momentum": momentum})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for weight in group["params"]:
                mean = self.state[weight].setdefault("mean", torch.zeros_like(weight))
                mean.lerp_(weight.grad, 1 - group["momentum"])
                weight -= group["lr"] * (weight.grad if group["plain"] else mean.sign())


def make(named_parameters, config):
    return Signed(named_parameters, config.learning_rate, config.momentum)
'''


@pytest.fixture(autouse=True)
def one_more_file(tmp_path, monkeypatch):
    (tmp_path / "signed.py").write_text(MATRICES)
    monkeypatch.setattr(methods, "__path__", [*methods.__path__, str(tmp_path)])


def trained(checkpoint=None, **settings):
    model = network()
    config = TrainConfig(batch=20, optimizer="signed", schedule="constant", **settings)
    return model, fit(model, shapes(20), config, device="cpu", checkpoint=checkpoint)


def test_its_name_switches_it_on_and_layers_are_told_apart_by_their_names():
    before, (model, _) = network(), trained(learning_rate=0.01)
    moved = [(a - b).abs() for a, b in zip(model.parameters(), before.parameters(), strict=True)]
    for inner in moved[1:-1]:
        assert torch.all(torch.isclose(inner, torch.tensor(0.01), rtol=1e-3) | (inner == 0))
    assert not torch.isclose(moved[0], torch.tensor(0.01), rtol=1e-3).any()


def test_a_resumed_training_ends_as_one_that_never_stopped(tmp_path):
    whole, _ = trained(epochs=1)
    trained(tmp_path / "c.pt", epochs=1)
    resumed, history = trained(tmp_path / "c.pt", epochs=1)
    assert history.restored == 1
    assert torch.equal(weights(whole), weights(resumed))


def test_an_unknown_name_is_refused_with_all_that_are_known_the_new_one_too():
    with pytest.raises(
        LabError, match="adamw or adam or sgd or lamb or lars or muon or schedule_free or signed"
    ):
        TrainConfig(optimizer="nothing")


def test_an_optimizer_by_its_name_takes_the_weights_of_a_plain_loop():
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 4), nn.Linear(4, 2))
    for name in ("lamb", "muon", "lars", "schedule_free", "sgd"):
        optimizer = factory(name, momentum=0.5)(model.parameters(), lr=0.1)
        weights = {id(weight) for group in optimizer.param_groups for weight in group["params"]}
        assert weights == {id(weight) for weight in model.parameters()}
        assert {group["lr"] for group in optimizer.param_groups} == {0.1}
        assert {group["weight_decay"] for group in optimizer.param_groups} == {0}
