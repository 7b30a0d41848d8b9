"""Yours of the lesson of the customer's order: several kinds of network, where labkit cannot be
imported.
"""

import sys

import nbformat
import numpy as np
import pytest
import torch
from torch import nn
from yours import Encoder, TwoOutputs, run_yours

from labkit.files import root
from labkit.lesson.exercises import l20_ship_it as reference

FILLED, FEW, NOT = "Filled: ship the folder.", "Too few inputs to tell", "Not filled: "


class Plain(nn.Module):
    """One linear layer whose weights are set: class 0 or 1 by the sign of the first number."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(64, 2)
        with torch.no_grad():
            self.head.bias.zero_()
            self.head.weight.zero_()
            self.head.weight[:, 0] = torch.tensor([1.0, -1.0])

    def forward(self, x):
        return self.head(x)


def small_cnn():
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 4))


def signs(count=400, outlier=0.0):
    """Inputs whose first number is near 1 or -1; the last one is always the same."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(count, 64, generator=generator) * 0.1
    x[:, 0] += torch.randint(2, (count,), generator=generator) * 2 - 1
    x[:, -1] = outlier
    return x


KINDS = {
    "a small CNN": (small_cnn, lambda: torch.randn(150, 3, 8, 8)),
    "a transformer encoder": (Encoder, lambda: torch.randint(50, (150, 12))),
    "two outputs": (TwoOutputs, lambda: torch.randn(150, 12)),
}


def of_the_page(tmp_path):
    """What the page has bound before the section: its imports, and what the section uses of it."""
    cells = {
        cell.id: cell.source
        for cell in nbformat.read(root() / "notebooks/20_ship_it.ipynb", as_version=4).cells
    }
    bound = {"folder": tmp_path, "rng": np.random.default_rng(0)}
    bound |= {"moved": reference.moved, "fair_factors": reference.fair_factors}
    exec(cells["s20-002"], bound)
    exec(cells["s20-025"].partition("def classes")[0], bound)
    return bound


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Return a function (network, inputs, labels) -> (names that the section bound, what it
    printed).
    """

    def run(network, inputs, labels=None, changed=("", "")):
        torch.manual_seed(0)
        network, inputs = network().eval(), inputs()
        if labels is None:
            with torch.inference_mode():
                outputs = network(inputs)
            labels = (outputs if torch.is_tensor(outputs) else outputs[0]).argmax(1)
        mine = {"network": network, "inputs": inputs, "labels": labels}
        bound = run_yours("20_ship_it", of_the_page(tmp_path), mine, monkeypatch, changed=changed)
        return bound, capsys.readouterr().out

    return run


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_network_ends_in_a_verdict_and_its_folder_runs_without_torch(kind, run):
    bound, printed = run(*KINDS[kind])
    assert bound["alone"].returncode == 0, bound["alone"].stderr
    assert len(bound["alone"].stdout.split()) == 10
    last = printed.splitlines()[-1]
    assert last.startswith((FILLED, FEW, NOT)), printed
    assert "runs without torch" not in last
    assert bound["my_score"](set()) == 1
    both = bound["my_score"]({"INT8", "gzip"})
    assert bound["my_factors"]["INT8"] * bound["my_factors"]["gzip"] == pytest.approx(both)
    assert ("INT8, changed copies" in printed) == (kind != "a transformer encoder")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("outlier", "verdict"), [(0.0, FILLED), (5000.0, "Not filled: points lost.")]
)
def test_an_outlier_that_swallows_the_answer_stops_the_file_where_all_else_is_allowed(
    outlier, verdict, run
):
    order = (
        '{"points lost": 1.0, "p95": 0.9, "bytes": 0.3}',
        '{"points lost": 1.0, "p95": 1e9, "bytes": 1e9}',
    )
    _, printed = run(Plain, lambda: signs(outlier=outlier), changed=order)
    assert printed.splitlines()[-1].startswith(verdict), printed


@pytest.mark.slow
def test_a_limit_that_is_missed_is_named(run):
    order = (
        '{"points lost": 1.0, "p95": 0.9, "bytes": 0.3}',
        '{"points lost": 1.0, "p95": 1e9, "bytes": 1e-6}',
    )
    _, printed = run(Plain, signs, changed=order)
    assert printed.splitlines()[-1] == "Not filled: bytes."


@pytest.mark.slow
def test_the_section_runs_without_labkit(run):
    run(Plain, signs)
    assert sys.modules["labkit"] is None
