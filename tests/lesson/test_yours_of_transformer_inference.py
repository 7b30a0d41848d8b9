"""Yours of the lesson on transformer inference: several kinds of network, where labkit cannot be
imported.
"""

import re

import pytest
import torch
from test_transformer_inference import page
from torch import nn
from yours import Encoder, TwoOutputs, run_yours

SHIP = "8 bits give the same answers"
NOT = "8 bits do not"
FEW = "Too few inputs to tell"
TIMED = ("the file in float", "the file in INT8")


class Named(TwoOutputs):
    """Its outputs in a dictionary."""

    def forward(self, x):
        scores, size = super().forward(x)
        return {"scores": scores, "size": size}


class Plain(nn.Module):
    """One linear layer whose weights are set: class 0 or 1 by the sign of a number."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(4, 2)
        with torch.no_grad():
            self.head.bias.zero_()
            self.head.weight.copy_(torch.tensor([[1.0, 0.0, 0.0, 0.0], [-1.0, 0.0, 0.0, 0.0]]))

    def forward(self, x):
        return self.head(x)


class NoLayer(nn.Module):
    """Without any layer that is meant."""

    def forward(self, x):
        return torch.stack([x[:, 0], -x[:, 0]], 1)


def resnet():
    return pytest.importorskip("torchvision").models.resnet18(num_classes=5)


def signs(outlier):
    """400 inputs of four numbers: the first is near 1 or -1, the last is always the same."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(400, 4, generator=generator) * 0.1
    x[:, 0] += torch.randint(2, (400,), generator=generator) * 2 - 1
    x[:, 3] = outlier
    return x


KINDS = {
    "a ResNet": (resnet, lambda: torch.randn(70, 3, 32, 32)),
    "a transformer encoder": (Encoder, lambda: torch.randint(50, (80, 12))),
    "two outputs": (TwoOutputs, lambda: torch.randn(80, 12)),
    "outputs with names": (Named, lambda: torch.randn(80, 12)),
    "no layer": (NoLayer, lambda: torch.randn(300, 4)),
}


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Return a function (network, inputs) -> (names that the section bound, what it printed)."""

    def run(network, inputs, answers="best_class"):
        torch.manual_seed(0)
        mine = {"network": network().eval(), "inputs": inputs()}
        changed = ("answers = best_class", f"answers = {answers}")
        bound = run_yours(
            "18_transformer_inference", page(folder=tmp_path), mine, monkeypatch, changed=changed
        )
        return bound, capsys.readouterr().out

    return run


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_network_ends_in_the_verdict_of_its_interval(kind, run):
    bound, printed = run(*KINDS[kind])
    worst, last = bound["worst"], printed.splitlines()[-1]
    expected = SHIP if worst.high <= 3 else NOT if worst.low > 3 else FEW
    assert last.startswith(expected), printed
    assert len(bound["rows"]) == 3
    assert all(f"{name} times as fast as " in re.sub(r": .*?\]", "", printed) for name in TIMED), (
        printed
    )
    if worst.high <= 3:
        assert ("ship the INT8 file" in last) == bool(bound["faster"])


@pytest.mark.slow
def test_a_transformer_of_pytorch_is_smoothed_as_the_section_says_and_goes_through_the_cells_again(
    run,
):
    """Its layers compute with `linear1.weight` themselves where no hook forbids it."""
    network, batch = Encoder().eval(), torch.randint(50, (80, 12))
    bound = page(LAYERS=(nn.Linear,))
    with torch.inference_mode():
        before = network(batch)
        smoothed = bound["smoothed_copy"](network, bound["layer_inputs"](network, batch), 0.7)
        assert sum(isinstance(layer, bound["Divided"]) for layer in smoothed.modules()) == 2
        assert torch.allclose(smoothed(batch), before, atol=1e-5)  # past the layers' forward
        hooked = bound["first_output"](smoothed, batch, lambda x: x)
        assert torch.allclose(hooked, before, atol=1e-5)  # through it
    _, printed = run(lambda: smoothed, lambda: batch)
    assert "the file in INT8: changes" in printed


@pytest.mark.slow
@pytest.mark.parametrize(("outlier", "verdict"), [(0.0, SHIP), (5000.0, NOT)])
def test_an_outlier_that_swallows_the_answer_is_found_and_stops_the_file(outlier, verdict, run):
    bound, printed = run(Plain, lambda: signs(outlier))
    assert printed.splitlines()[-1].startswith(verdict), printed
    assert "head: the largest number is" in printed
    assert (bound["rows"]["one grid per call"].median > 3) == (verdict == NOT)


@pytest.mark.slow
def test_an_embedding_network_is_judged_by_its_neighbours(run):
    bound, printed = run(Encoder, lambda: torch.randint(50, (120, 12)), answers="nearest")
    assert bound["answers"] is bound["nearest"]
    exact = bound["my_exact"]
    assert bound["changed"](exact, exact, bound["answers"]).median == 0
    assert "the file in INT8: changes" in printed
