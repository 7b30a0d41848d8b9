"""A new method is one file and one field: the loop, the checkpoint and the config pick it up by
themselves.
"""

import dataclasses

import pytest
import torch
from made_up import network, shapes, weights

from labkit import methods
from labkit.train import CheckpointError, TrainConfig, fit, load_checkpoint, method

SIGN = '''
"""Made up: each weight moves by the sign of its gradient, and the steps are counted."""

import torch

from labkit.methods import Hooks


class Method(Hooks):
    steps = 0

    def before_update(self, model):
        for weight in model.parameters():
            weight.grad = self.value * torch.sign(weight.grad)

    def after_update(self, model):
        self.steps += 1

    def state_dict(self):
        return {"steps": self.steps}

    def load_state_dict(self, state):
        self.steps = state["steps"]
'''


@dataclasses.dataclass(frozen=True, kw_only=True)
class Later(TrainConfig):
    sign: float | None = method("sign", "step size of the sign of the gradient")


@pytest.fixture(autouse=True)
def one_more_file(tmp_path, monkeypatch):
    (tmp_path / "sign.py").write_text(SIGN)
    monkeypatch.setattr(methods, "__path__", [*methods.__path__, str(tmp_path)])


def trained(checkpoint=None, **settings):
    config = Later(
        batch=20, optimizer="sgd", schedule="constant", momentum=0.0, weight_decay=0.0, **settings
    )
    model = network()
    return model, fit(model, shapes(20), config, device="cpu", checkpoint=checkpoint)


def test_a_method_changes_the_step_when_its_field_is_switched_on():
    moved = [
        (a - b).abs()
        for a, b in zip(trained(sign=2.0)[0].parameters(), network().parameters(), strict=True)
    ]
    assert torch.cat([each.flatten() for each in moved]).median().item() == pytest.approx(
        2.0 * 0.01, rel=1e-3
    )
    assert not torch.equal(weights(trained()[0]), weights(trained(sign=2.0)[0]))


def test_what_a_method_remembers_is_kept_in_the_checkpoint(tmp_path):
    trained(tmp_path / "c.pt", sign=2.0, epochs=3)
    state, facts = load_checkpoint(tmp_path / "c.pt")
    assert state["sign"] == {"steps": 3}
    assert facts["config"]["sign"] == 2.0
    assert trained(tmp_path / "c.pt", sign=2.0, epochs=3)[1].restored == 3


def test_a_checkpoint_from_before_the_method_is_gone_on_with_while_it_is_off(tmp_path):
    config = TrainConfig(
        batch=20, optimizer="sgd", schedule="constant", momentum=0.0, weight_decay=0.0
    )
    fit(network(), shapes(20), config, device="cpu", checkpoint=tmp_path / "c.pt")
    assert trained(tmp_path / "c.pt")[1].restored == 1
    with pytest.raises(CheckpointError, match=r"sign 2\.0[\s\S]*sign None"):
        trained(tmp_path / "c.pt", sign=2.0)
