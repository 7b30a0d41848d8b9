"""The last section of the lesson on ONNX graphs: networks of several kinds, where labkit cannot
be imported.
"""

import numpy as np
import pytest
import torch
from test_onnx_graphs import page
from torch import nn
from yours import Encoder, TwoOutputs, run_yours

from labkit.lesson.exercises.l12_onnx_graphs import parity


class Branches(nn.Module):
    """Answers a batch below 4 in another way."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(6, 3)

    def forward(self, x):
        if x.shape[0] < 4:
            return self.head(-x)
        return self.head(x)


class Frozen(Branches):
    """Takes its batch for a plain number."""

    def forward(self, x):
        return self.head(x.view(len(x), -1)) * len(x)


class Named(nn.Module):
    """Two outputs in a dictionary; drops numbers by chance, whatever its mode."""

    def __init__(self):
        super().__init__()
        self.body = nn.Linear(12, 8)

    def forward(self, x):
        body = self.body(x).relu()
        return {"mean": body.mean(1), "dropped": nn.functional.dropout(body, 0.5, training=True)}


class Texts(nn.Module):
    """A mean over tokens below 50, (n, tokens) -> (n, 3), that takes their number for a plain
    one.
    """

    def __init__(self):
        super().__init__()
        self.embedding, self.head = nn.Embedding(50, 8), nn.Linear(8, 3)

    def forward(self, tokens):
        return self.head(self.embedding(tokens).sum(1) / len(tokens[0]))


class Short(nn.Module):
    """Answers a text below 10 tokens in another way."""

    def __init__(self):
        super().__init__()
        self.embedding, self.head = nn.Embedding(50, 8), nn.Linear(8, 3)

    def forward(self, tokens):
        words = self.embedding(tokens).mean(1)
        return self.head(-words) if tokens.shape[1] < 10 else self.head(words)


class Before(nn.Module):
    """Batch norm before each convolution, as in a ResNet with pre-activation."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.BatchNorm2d(3), nn.ReLU(), nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU()
        )

    def forward(self, x):
        return self.body(x).mean((2, 3))


def resnet():
    return pytest.importorskip("torchvision").models.resnet18(num_classes=5)


SOUND = {
    "a ResNet": (resnet, lambda: torch.randn(70, 3, 32, 32)),
    "a transformer encoder": (Encoder, lambda: torch.randint(50, (80, 12))),
    "two outputs": (TwoOutputs, lambda: torch.randn(80, 12)),
    "batch norm before convolution": (Before, lambda: torch.randn(80, 3, 12, 12)),
    "texts of one length": (Texts, lambda: torch.randint(50, (80, 20))),
    "few inputs": (lambda: nn.Linear(6, 3), lambda: torch.randn(5, 6)),
}
UNSOUND = {
    "a branch on the batch": (Branches, lambda: torch.randn(80, 6), "(4, 6): wrong"),
    "a frozen batch": (Frozen, lambda: torch.randn(80, 6), "(1, 6): refused"),
    "dropout in every mode": (Named, lambda: torch.randn(80, 12), "Dropout in the file"),
}


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Return a function (network, inputs) -> (names that the section bound, what it printed)."""

    def run(network, inputs, sizes="BATCH"):
        torch.manual_seed(0)
        mine = {"network": network().eval(), "inputs": inputs()}
        changed = ("sizes = BATCH", f"sizes = {sizes}")
        bound = run_yours(
            "12_onnx_graphs", page(folder=tmp_path), mine, monkeypatch, changed=changed
        )
        return bound, capsys.readouterr().out

    return run


@pytest.mark.slow
@pytest.mark.parametrize("kind", SOUND)
def test_a_sound_network_is_shipped_with_its_largest_difference(kind, run):
    bound, printed = run(*SOUND[kind])
    last = printed.splitlines()[-1]
    assert last.startswith("Ship it for any x "), printed
    assert "right for every batch at this size" in last
    assert bound["problems"] == []
    assert 0 <= bound["worst"] < 1e-4
    assert bound["my_kinds"].total() <= bound["traced_kinds"].total()


@pytest.mark.slow
@pytest.mark.parametrize("kind", UNSOUND)
def test_what_is_wrong_is_named_and_the_file_is_not_shipped(kind, run):
    network, inputs, problem = UNSOUND[kind]
    bound, printed = run(network, inputs)
    assert printed.splitlines()[-1] == "Do not ship it yet."
    assert any(line.endswith(problem) for line in bound["problems"]), bound["problems"]
    assert np.isfinite(bound["worst"]) or "wrong" in printed


TOKENS = '{**BATCH, 1: Dim("tokens")}'


@pytest.mark.slow
def test_a_second_free_side_is_tried_and_named_in_the_verdict(run):
    bound, printed = run(Encoder, lambda: torch.randint(50, (80, 12)), TOKENS)
    assert {batch.shape[1] for batch in bound["my_batches"]} == {12, 11, 6}
    assert printed.splitlines()[-1].startswith(
        "Ship it for any x any: right for every size tried"
    ), printed


@pytest.mark.slow
@pytest.mark.parametrize(("network", "verdict"), [(Texts, "refused"), (Short, "wrong")])
def test_a_length_that_is_not_free_in_truth_stops_the_file(network, verdict, run):
    bound, printed = run(network, lambda: torch.randint(50, (80, 12)), TOKENS)
    assert printed.splitlines()[-1] == "Do not ship it yet."
    assert f"all rules, (2, 6): {verdict}" in bound["problems"], bound["problems"]
    assert not any("(8, 12)" in problem for problem in bound["problems"])


def test_parity_with_a_reference_of_zeros_is_0_for_zeros_and_beyond_every_limit_for_others():
    zeros, numbers = np.zeros((1, 2), np.float32), np.full((1, 2), 0.5, np.float32)
    with np.errstate(all="raise"):
        assert parity(lambda batch: [zeros], lambda batch: [zeros], [None]) == 0
        assert parity(lambda batch: [zeros], lambda batch: [numbers], [None]) > 1e9
