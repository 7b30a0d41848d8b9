"""The last section of the lesson on large batches, on networks of all kinds, where labkit cannot
be imported.
"""

import math
import re
import sys
import types

import nbformat
import numpy as np
import pytest
import torch
from torch import nn
from yours import SMALL_NETWORKS, printed, without_labkit

from labkit.files import notebooks
from labkit.lesson.exercises import l07_large_batch_tricks as lesson

BEFORE = """
profile = "lab"

def find_peak(accuracy_at, start):
    best = start
    for factor in (2, 1 / 2):
        while accuracy_at(best * factor) > accuracy_at(best):
            best *= factor
    return best

def my_schedule(step, steps):
    return max(0.0, 1 - step / steps)
"""
AFTER = """
assert all(torch.equal(old, new) for old, new in zip(before, mine.network.parameters())), "the network was changed"
assert times == (None if any(doubts.values()) else large_peak / small_peak)
assert len(at_small) == len(lost) == len(still_lost) == tries, "as many pairs as seeds"
print("done")
"""
NETWORKS = {
    "a small ResNet": (
        "(3, 16, 16)",
        "from torchvision.models.resnet import BasicBlock, ResNet\n"
        "mine.network = ResNet(BasicBlock, [1, 1, 1, 1], num_classes=3)",
    ),
    **SMALL_NETWORKS,
}

A_LINEAR_LAYER = ("(6,)", "mine.network = nn.Linear(6, 3)")


def cells():
    """The source of the cells that a reader takes along: imports, the training, and those of
    Yours.
    """
    (path,) = [path for path in notebooks() if path.stem.endswith("large_batch_tricks")]
    code = [
        cell.source for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"
    ]
    start = next(
        place for place, source in enumerate(code) if source.startswith("from mine import")
    )
    taken = [
        source for source in code if source.startswith(("import copy", "Run = ", "def train("))
    ]
    return [*taken, *code[start : start + 4]]


def last_section(tmp_path, shape, network, contrast=1.0, **numbers):
    """What the cells of Yours print, for a network in eval mode and inputs whose classes lie
    `contrast` apart.

    numbers  what the reader changes on top of the first cell: `count`, `epochs`, ...
    """
    before = without_labkit(shape, contrast) + BEFORE
    copied = "before = [weight.clone() for weight in mine.network.parameters()]"
    taken = "\n".join(cells())
    for name, number in numbers.items():
        taken, changed = re.subn(rf"^{name} = .*$", f"{name} = {number}", taken, flags=re.MULTILINE)
        assert changed == 1, f"{name} stands on top, once"
    script = "\n".join([before, network, "mine.network.eval()", copied, taken, AFTER])
    return printed(script, tmp_path)


SHORT = {"count, epochs": "64, 1", "tries": 2}
LONG = {"count, epochs": "128, 6", "tries": 6}
A_GRU = (
    "(12, 8)",
    """
class Rows(nn.Module):
    def __init__(self):
        super().__init__()
        self.gru, self.out = nn.GRU(8, 16, batch_first=True), nn.Linear(16, 3)
    def forward(self, x):
        return self.out(self.gru(x)[0][:, -1])
mine.network = Rows()""",
)


@pytest.mark.slow
@pytest.mark.parametrize("name", NETWORKS)
def test_yours_runs_on_a_network_of_another_kind_and_leaves_it_as_it_was(name, tmp_path):
    assert "batch 64 loses" in last_section(tmp_path, *NETWORKS[name], **SHORT)


@pytest.mark.slow
@pytest.mark.parametrize(
    "network", [NETWORKS["two outputs"], A_GRU], ids=["a linear layer", "a GRU"]
)
def test_where_nothing_was_learned_no_peak_is_named_and_the_numbers_to_change_are(
    network, tmp_path
):
    printed = last_section(tmp_path, *network, contrast=0.0)
    assert "No peak of batch 16 can be seen: at best" in printed
    assert "Change count (128) and epochs (3)" in printed
    assert "your peaks" not in printed


@pytest.mark.slow
def test_a_gru_that_only_begins_to_learn_climbs_the_noise_and_gets_no_peak(tmp_path):
    printed = last_section(tmp_path, *A_GRU, contrast=0.3)
    assert "your peaks" not in printed
    assert "Change count (128) and epochs (3)" in printed


@pytest.mark.slow
def test_a_network_that_is_right_at_every_rate_has_no_peak(tmp_path):
    printed = last_section(tmp_path, *A_LINEAR_LAYER, contrast=4.0)
    assert "points above" in printed
    assert "your peaks" not in printed


def verdict(accuracy_of, monkeypatch, capsys, *, first_seed=0):
    """What Yours prints where a training ends at `accuracy_of(batch, rate)` and the luck of its
    seed, in percent.
    """
    mine = types.ModuleType("mine")
    mine.network, mine.inputs, mine.labels = (
        nn.Linear(2, 10),
        torch.zeros(400, 2),
        torch.arange(400) % 10,
    )
    monkeypatch.setitem(sys.modules, "mine", mine)
    page = {"profile": "lab", "find_peak": lesson.find_peak, "my_schedule": lesson.my_schedule}

    def train(batch, rate, *, seed, **_):
        luck = np.random.default_rng([batch, round(2**20 * rate), first_seed + seed]).normal()
        return page["Run"](accuracy_of(batch, rate) + luck, [])

    shown, own = cells()[:3], cells()[3:]
    exec("\n".join(shown), page)  # of this repository
    exec("\n".join(own), page | {"train": train})
    return capsys.readouterr().out


def hill(*, top, high=80.0):
    """Accuracy against the learning rate with a peak for each batch, {batch: learning rate}."""
    return lambda batch, rate: high - 6 * math.log2(rate / top[batch]) ** 2


def test_a_peak_that_stands_out_of_the_noise_is_named(monkeypatch, capsys):
    printed = verdict(hill(top={16: 1 / 4, 64: 1 / 2}), monkeypatch, capsys)
    assert "your peaks: 0.25 and 0.5, 2 times that" in printed
    assert "No peak" not in printed


def test_a_peak_below_the_start_is_named_too(monkeypatch, capsys):
    printed = verdict(hill(top={16: 1 / 128, 64: 1 / 32}), monkeypatch, capsys)
    assert "your peaks: 0.0078125 and 0.03125, 4 times that" in printed


def test_where_all_rates_are_equal_but_for_the_noise_no_peak_is_named(monkeypatch, capsys):
    printed = verdict(lambda batch, rate: 70.0, monkeypatch, capsys)
    assert "No peak of batch 16 can be seen: " in printed
    assert "Change count (128) and epochs (3)" in printed
    assert "your peaks" not in printed


def test_of_sixty_flat_hills_nearly_none_is_given_a_peak(monkeypatch, capsys):
    """Three standard errors on both sides of two peaks: noise passes all four in a few of a
    hundred runs at most.
    """
    named = 0
    for number in range(60):
        printed = verdict(lambda batch, rate: 70.0, monkeypatch, capsys, first_seed=4 * number)
        named += "your peaks" in printed
    assert named <= 3


def test_one_batch_without_a_peak_is_enough_to_name_no_factor(monkeypatch, capsys):
    seen = hill(top={16: 1 / 4})
    printed = verdict(
        lambda batch, rate: seen(16, rate) if batch == 16 else 70.0, monkeypatch, capsys
    )
    assert "No peak of batch 64 can be seen: " in printed
    assert "No peak of batch 16" not in printed
    assert "your peaks" not in printed


def test_a_peak_of_trainings_that_learned_little_is_none(monkeypatch, capsys):
    printed = verdict(hill(top={16: 1 / 4, 64: 2}, high=35), monkeypatch, capsys)
    assert "No peak of batch 16 can be seen: at best 3" in printed
    assert "% by one answer" in printed
    assert "your peaks" not in printed
