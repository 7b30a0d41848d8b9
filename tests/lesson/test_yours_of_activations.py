"""The last section of the lesson on activations: networks of several kinds, where labkit cannot be
imported.
"""

from functools import partial

import pandas as pd
import pytest
import torch
from torch import nn
from yours import Encoder, TwoOutputs, run_yours

from labkit.lesson.exercises import l09_activation_study as reference
from labkit.lesson.support import load_support
from labkit.measure import in_turn

VERDICTS = ("they pay where", "checkpoints are not worth it", "whether the time is worth it")


class Vision(nn.Module):
    """A transformer encoder of PyTorch, one child among others, which reads its layers' fields."""

    def __init__(self):
        super().__init__()
        self.patch = nn.Conv2d(1, 16, 4, 4)
        layer = nn.TransformerEncoderLayer(16, 2, 64, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, 6, enable_nested_tensor=False)
        self.head = nn.Linear(16, 3)

    def forward(self, x):
        return self.head(self.encoder(self.patch(x).flatten(2).transpose(1, 2)).mean(1))


def flat_cnn():
    layers = []
    for before, after in ((1, 16), (16, 16), (16, 16), (16, 16)):
        layers += [nn.Conv2d(before, after, 3, 1, 1), nn.BatchNorm2d(after), nn.SiLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 3))


def resnet():
    return pytest.importorskip("torchvision").models.resnet18(num_classes=3)


KINDS = {  # {kind: (network, inputs, the best cut)}
    "a transformer encoder": (Vision, lambda: torch.randn(32, 1, 28, 28), "6 x Transformer"),
    "a flat CNN": (flat_cnn, lambda: torch.randn(32, 1, 28, 28), "1 x Sequential in 3 parts"),
    "a ResNet": (resnet, lambda: torch.randn(8, 3, 32, 32), ""),
    "tokens": (Encoder, lambda: torch.randint(50, (32, 12)), ""),
    "two outputs": (TwoOutputs, lambda: torch.randn(32, 12), ""),
}


@pytest.fixture
def run(monkeypatch, capsys):
    """Yield a function (network, inputs) -> (names that the section bound, what it printed)."""

    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # as in the lesson

    def run(network, inputs):
        torch.manual_seed(0)
        bound = {"torch": torch, "pd": pd, "partial": partial, "in_turn": in_turn}
        bound |= {"study": load_support("activation_study"), "kept_bytes": reference.kept_bytes}
        bound |= {"seconds": 0.1, "no_compiler": "not asked for"}
        mine = {"network": network().eval(), "inputs": inputs()}
        bound = run_yours("09_activation_study", bound, mine, monkeypatch)
        return bound, capsys.readouterr().out

    yield run
    torch.set_num_threads(threads)


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_of_network_keeps_its_answers_and_ends_in_a_verdict(kind, run):
    network, inputs, best = KINDS[kind]
    bound, printed = run(network, inputs)
    assert "same answers: True" in printed
    assert printed.splitlines()[-1].startswith(VERDICTS), printed
    assert bound["cut"].startswith(best)
    if best:
        assert bound["peak"] < 75


def test_a_whole_encoder_as_one_checkpoint_keeps_next_to_nothing_and_saves_nothing(run):
    bound, _ = run(*KINDS["a transformer encoder"][:2])
    kept, peak = bound["shares"].loc["1 x TransformerEncoder"]
    assert kept < 20
    assert peak > 90


def test_the_recipe_by_hand_survives_a_parent_that_reads_fields():
    network, x = Vision().eval(), torch.randn(2, 1, 28, 28)
    before = network(x)
    checkpoint = torch.utils.checkpoint.checkpoint
    for layer in network.encoder.layers:
        layer.forward = partial(checkpoint, layer.forward, use_reentrant=False)
    assert torch.allclose(network(x), before, atol=1e-5)
    network(x).sum().backward()
