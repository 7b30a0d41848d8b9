"""The last section of lesson 02 runs on networks of several kinds, without labkit."""

import sys
from functools import partial
from types import ModuleType

import numpy as np
import pandas as pd
import pytest
import torch
import torchvision
from torch import nn
from yours import Encoder, TwoOutputs, cells_of_yours

from labkit.lesson.exercises import l02_measuring_honestly as answers
from labkit.measure.stats import median_interval

WORDS = {"faster", "slower", "not distinguishable", "refused"}


NETWORKS = {
    "a ResNet of torchvision": (
        partial(torchvision.models.resnet18, num_classes=10),
        lambda: torch.randn(8, 3, 32, 32),
    ),
    "a transformer encoder": (Encoder, lambda: torch.randint(50, (8, 12))),
    "two outputs": (TwoOutputs, lambda: torch.randn(8, 12)),
}


@pytest.fixture
def run_yours(monkeypatch):
    def run(network, inputs):
        torch.manual_seed(0)
        mine = ModuleType("mine")
        mine.network, mine.inputs = network().eval(), inputs()
        space = {
            "np": np,
            "pd": pd,
            "torch": torch,
            "partial": partial,
            "nothing": lambda: None,
            "profile": "quick",
        }
        space |= {
            name: getattr(answers, name)
            for name in ("compare_series", "null_arm", "is_real", "same_answers")
        }
        space["middle"] = median_interval
        monkeypatch.setitem(sys.modules, "mine", mine)
        monkeypatch.setitem(sys.modules, "labkit", None)  # an import of it fails
        for source in cells_of_yours("02_measuring_honestly"):
            exec(source, space)
        return space["rows"]

    return run


@pytest.mark.slow
@pytest.mark.parametrize("kind", NETWORKS)
def test_the_cells_of_yours_end_in_a_verdict_without_labkit(kind, run_yours):
    rows = run_yours(*NETWORKS[kind])
    assert {name: same for name, (same, *_) in rows.items()} == {
        "no change": True,
        "gradients recorded": True,
        "inference_mode": True,
        "bfloat16": True,
        "half of the batch": False,
    }
    assert {verdict for _, verdict, *_ in rows.values()} <= WORDS
    assert rows["half of the batch"][1] == "refused"


@pytest.mark.slow
def test_a_network_that_is_not_in_eval_mode_is_refused_by_the_row_without_a_change(run_yours):
    def dropping():
        network = nn.Sequential(nn.Linear(12, 64), nn.Dropout(0.5), nn.Linear(64, 3))
        network.eval = lambda: network  # the reader has forgotten it
        return network

    assert run_yours(dropping, lambda: torch.randn(8, 12))["no change"][:2] == (False, "refused")
