"""The accuracy of the activations: what it trains, and that a compiled training is the same one."""

import torch
from torch.nn import functional as F

from labkit.experiments import Scale, activation_accuracy
from labkit.ledger import published


def test_the_sigmoid_is_nearest_to_gelu_at_its_own_factor():
    x = torch.linspace(-6, 6, 2001)
    quick = activation_accuracy.QuickGELU()(x)
    assert (quick - F.gelu(x)).abs().max() < 0.021
    assert (x * torch.sigmoid(1.6 * x) - F.gelu(x)).abs().max() > 0.021


def test_every_published_activation_is_trained_plainly_and_compiled():
    plan = activation_accuracy._plan(Scale(quick=False, seconds=1.0, device=torch.device("cpu")))
    pairs = {(name, compiled) for name, compiled in plan}
    for name in published.table("activations")["activation"].unique():
        assert {(name, False), (name, True)} <= pairs
    assert {name for name, compiled in pairs if not compiled} == set(
        activation_accuracy.ACTIVATIONS
    )


def test_each_setting_gives_a_row_with_what_it_got_right(monkeypatch):
    monkeypatch.setattr(
        activation_accuracy, "_plan", lambda scale: [("ReLU", False), ("FastSwish", False)]
    )
    rows = list(
        activation_accuracy.measure(Scale(quick=True, seconds=1.0, device=torch.device("cpu")))
    )
    assert [row.variant for row in rows] == ["ReLU, seed 0", "FastSwish, seed 0"]
    assert all(0.15 < row.accuracy < 1 for row in rows)
    assert rows[0].images == 640
