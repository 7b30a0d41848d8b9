"""The last section of lesson 01 runs on networks of several kinds, without labkit."""

import sys
import time
from functools import partial
from types import ModuleType

import nbformat
import numpy as np
import pytest
import torch
import torchvision
from torch import nn
from yours import TwoOutputs, cells_of_yours

from labkit.files import root
from labkit.lesson.exercises import l01_deployment_fundamentals as answers

CELLS = nbformat.read(root() / "notebooks" / "01_deployment_fundamentals.ipynb", as_version=4).cells


class Words(nn.Module):
    """A classifier of token numbers."""

    def __init__(self):
        super().__init__()
        self.embedding, self.head = nn.Embedding(50, 16), nn.Linear(16, 4)

    def forward(self, tokens):
        return self.head(self.embedding(tokens).mean(dim=1))


NETWORKS = {
    "a ResNet of torchvision": (
        partial(torchvision.models.resnet18, num_classes=10),
        lambda: torch.randn(8, 3, 32, 32),
    ),
    "token numbers": (Words, lambda: torch.randint(50, (8, 12))),
    "two outputs": (TwoOutputs, lambda: torch.randn(8, 12)),
}


def cell_with(words):
    """The first code cell that holds these words."""
    return next(cell.source for cell in CELLS if cell.cell_type == "code" and words in cell.source)


@pytest.mark.parametrize("kind", NETWORKS)
def test_the_cells_of_yours_end_in_machines_and_dollars_without_labkit(kind, monkeypatch):
    network, inputs = NETWORKS[kind]
    torch.manual_seed(0)
    mine = ModuleType("mine")
    mine.network, mine.inputs, mine.labels = (
        network().eval(),
        inputs(),
        torch.zeros(8, dtype=torch.int64),
    )
    monkeypatch.setitem(sys.modules, "mine", mine)
    monkeypatch.setitem(sys.modules, "labkit", None)  # an import of it fails

    # What the reader has from the lesson: two functions of its cells, and the answers to its
    # exercises.
    space = {
        "np": np,
        "torch": torch,
        "clock": time.thread_time,
        "wait": lambda: None,
        "seed": 0,
        "COUNT": 2000,
    }
    space |= {
        name: getattr(answers, name) for name in ("response_times", "one_queue", "cost_per_million")
    }
    exec(cell_with("def service_times").partition("\n\n\n")[0], space)
    exec(cell_with("def queue_each").partition("\n\n\n")[0], space)
    measuring, deciding = cells_of_yours("01_deployment_fundamentals")
    exec(measuring, space)
    assert space["requests"][-1] == pytest.approx(2000 / space["my_requests_per_second"], rel=0.1)

    # An order for this network, as a reader writes one: the work of four machines, a limit of four
    # answers.
    mean = space["my_times"].mean()
    space["my_limit_ms"] = 4e3 * mean
    space["requests"] = np.random.default_rng(0).exponential(mean / 4, 2000).cumsum()
    exec(deciding, space)

    alone, together = (space["my_prices"][name] for name in ("queue_each", "one_queue"))
    if together[0] is not None:  # no answer of its own took longer than the limit
        busy = 1e6 * mean / 3600 * space["my_usd_per_hour"]
        assert together[1] == pytest.approx(busy * together[0] / 4, rel=0.1)
        assert alone[0] is None or alone[0] > together[0]
