"""The last section of the lesson on pruning: networks of several kinds, where labkit cannot be
imported.
"""

from types import SimpleNamespace

import pytest
import torch
from test_pruning_and_coding import page, small_network
from torch import nn
from yours import Encoder, TwoOutputs, run_yours


class Text(nn.Module):
    """A transformer encoder with a linear layer on top: (n, tokens) -> (n, 3)."""

    def __init__(self):
        super().__init__()
        self.encoder, self.head = Encoder(), nn.Linear(16, 3)

    def forward(self, tokens):
        return self.head(self.encoder(tokens))


def resnet():
    return pytest.importorskip("torchvision").models.resnet18(num_classes=3)


KINDS = {
    "a ResNet": (resnet, lambda: torch.randn(120, 3, 32, 32)),
    "a transformer encoder": (Text, lambda: torch.randint(50, (400, 12))),
    "two outputs": (TwoOutputs, lambda: torch.randn(400, 12)),
    "batch norm and linear layers": (small_network, lambda: torch.randn(400, 1, 6, 6)),
}


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Return a function (network, inputs, labels or None) -> (names that the section bound, what it
    printed).

    Without labels the network's own answers are the right ones. With `train` the section may heal
    on them.
    """

    def run(network, inputs, labels=None, train=False):
        torch.manual_seed(0)
        mine = {"network": network().eval(), "inputs": inputs()}
        if labels is None:
            with torch.inference_mode():
                scores = mine["network"](mine["inputs"])
            labels = (scores if torch.is_tensor(scores) else scores[0]).argmax(1)
        mine["labels"] = labels
        if train:
            mine["train_batches"] = (
                list(zip(mine["inputs"].split(20), labels.split(20), strict=True)) * 10
            )
        lab = SimpleNamespace(choose=lambda quick, lab: quick)
        bound = page({"folder": tmp_path, "lab": lab})
        run_yours("15_pruning_and_coding", bound, mine, monkeypatch)
        return bound, capsys.readouterr().out

    return run


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_network_gets_a_file_that_opens_and_a_verdict(kind, run):
    bound, printed = run(*KINDS[kind])
    lines = printed.splitlines()
    assert len(lines) == 3  # the sparsity that `quick` tries, what stays in 16 bits, the verdict
    assert lines[-1].endswith(("smaller.", "fewer zeros.", "more examples."))
    assert bound["my_smaller"] > 1
    opened, chosen = bound["my_opened"].state_dict(), bound["chosen"].state_dict()
    assert all(torch.equal(opened[name], numbers) for name, numbers in chosen.items())


@pytest.mark.slow
def test_a_network_whose_answers_do_not_hang_on_its_weights_is_shipped(run):
    class Constant(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.Linear(12, 3)

        def forward(self, x):
            return 0 * self.body(x) + torch.tensor([0.0, 2.0, 1.0])

    bound, printed = run(Constant, lambda: torch.randn(400, 12))
    assert "Ship it: " in printed
    assert bound["lost"] == 0


@pytest.mark.slow
def test_a_network_of_equal_parts_that_forgets_is_not_shipped(run):
    class Sums(nn.Module):
        """Every weight counts alike: the sign of a sum of random numbers says the class."""

        def __init__(self):
            super().__init__()
            self.body = nn.Linear(400, 2, bias=False)
            self.body.weight.data = torch.tensor([[1.0], [-1.0]]) * (1 + torch.rand(400) / 100)

        def forward(self, x):
            return self.body(x)

    bound, printed = run(Sums, lambda: torch.randn(1000, 400))
    assert bound["low"] > 2
    assert "Do not ship it" in printed


@pytest.mark.slow
def test_batches_to_train_on_heal_and_what_is_pruned_stays_zero(run):
    kind = KINDS["batch norm and linear layers"]
    alone, _ = run(*kind)
    healed, _ = run(*kind, train=True)
    assert healed["lost"] < alone["lost"] - 3
    weights = healed["weights_of"](healed["chosen"])
    zeros = sum(int((weight == 0).sum()) for weight in weights)
    assert zeros >= round(0.9 * sum(weight.numel() for weight in weights))


@pytest.mark.slow
def test_attention_is_pruned_and_shared_and_an_embedding_is_named_as_left(run):
    class Attending(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Embedding(50, 16)
            self.layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
            self.head = nn.Linear(16, 3)

        def forward(self, tokens):
            return self.head(self.layer(self.table(tokens)).mean(1))

    bound, printed = run(Attending, lambda: torch.randint(50, (400, 12)))
    attention = bound["my_opened"].layer.self_attn.in_proj_weight
    assert len(attention.unique()) <= 17
    assert (attention == 0).any()
    assert len(bound["my_opened"].table.weight.unique()) > 17
    assert "most in: table.weight" in printed
