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
assert len(lost) == 3, "three settings of batch 64"
assert all(len(pairs) == tries for pairs in lost.values()), "as many pairs as seeds"
assert won is None or won == (at_first - at_last).mean()
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
    assert "with your schedule: " in last_section(tmp_path, *NETWORKS[name], **SHORT)


@pytest.mark.slow
@pytest.mark.parametrize(
    "network", [NETWORKS["two outputs"], A_GRU], ids=["a linear layer", "a GRU"]
)
def test_where_nothing_can_be_learned_nothing_is_won_back_and_the_numbers_to_change_are_named(
    network, tmp_path
):
    printed = last_section(tmp_path, *network, contrast=0.0)
    assert "won back" not in printed
    assert "Raise count (128)" in printed
    assert "epochs (3)" in printed


@pytest.mark.slow
def test_batch_64_of_a_gru_that_has_few_steps_loses_and_the_last_cell_says_how_much_comes_back(
    tmp_path,
):
    printed = last_section(tmp_path, *A_GRU, contrast=0.5, tries=6)
    assert "won back: " in printed


def verdict(accuracy_of, monkeypatch, capsys, *, first_seed=0):
    """What Yours prints where a training ends at `accuracy_of(batch, rate, schedule)` and the luck
    of its seed, in percent. The schedule is "cosine" or "mine".
    """
    mine = types.ModuleType("mine")
    mine.network, mine.inputs, mine.labels = (
        nn.Linear(2, 10),
        torch.zeros(400, 2),
        torch.arange(400) % 10,
    )
    monkeypatch.setitem(sys.modules, "mine", mine)
    page = {"profile": "lab", "find_peak": lesson.find_peak, "my_schedule": lesson.my_schedule}

    def train(batch, rate, *, seed, schedule, **_):
        name = "mine" if schedule is lesson.my_schedule else "cosine"
        luck = np.random.default_rng(
            [batch, round(2**20 * rate), len(name), first_seed + seed]
        ).normal()
        return page["Run"](accuracy_of(batch, rate, name) + luck, [])

    shown, own = cells()[:3], cells()[3:]
    exec("\n".join(shown), page)  # of this repository
    exec("\n".join(own), page | {"train": train})
    return capsys.readouterr().out


def hill(*, top, high=None, by_schedule=0.0):
    """Accuracy against the learning rate with a peak for each batch, {batch: learning rate}, and
    its height, {batch: percent}.
    """
    high = high or dict.fromkeys(top, 80.0)
    return lambda batch, rate, schedule: (
        high[batch]
        - 6 * math.log2(rate / top[batch]) ** 2
        + (by_schedule if schedule == "mine" else 0.0)
    )


def points(printed, words):
    """The number before ±, in the line of `words`."""
    (line,) = [line for line in printed.splitlines() if words in line]
    return float(re.search(r": (-?[\d.]+) ±", line)[1])


def test_what_the_own_peak_and_the_schedule_win_back_is_named(monkeypatch, capsys):
    accuracy_of = hill(top={16: 1 / 4, 64: 1}, high={16: 80.0, 64: 74.0}, by_schedule=2.0)
    printed = verdict(accuracy_of, monkeypatch, capsys)
    assert points(printed, "at 0.25, the peak of batch 16") == pytest.approx(6 + 24, abs=3)
    assert points(printed, "at 1, its own peak") == pytest.approx(6, abs=3)
    assert points(printed, "there with your schedule") == pytest.approx(4, abs=3)
    assert points(printed, "won back") == pytest.approx(26, abs=3)


def test_a_small_batch_with_a_wide_flat_top_still_gets_its_number(monkeypatch, capsys):
    peaked = hill(top={64: 1 / 4}, high={64: 77.0})
    printed = verdict(
        lambda batch, rate, schedule: 80.0 if batch == 16 else peaked(batch, rate, schedule),
        monkeypatch,
        capsys,
    )
    assert "won back: " in printed


def test_a_schedule_that_makes_it_worse_is_counted_against_it(monkeypatch, capsys):
    accuracy_of = hill(top={16: 1 / 4, 64: 1 / 4}, high={16: 80.0, 64: 74.0}, by_schedule=-5.0)
    assert points(verdict(accuracy_of, monkeypatch, capsys), "won back") == pytest.approx(-5, abs=3)


def test_a_peak_below_the_start_is_climbed_to(monkeypatch, capsys):
    printed = verdict(hill(top={16: 1 / 128, 64: 1 / 32}), monkeypatch, capsys)
    assert "at 0.0078125, the peak of batch 16" in printed
    assert "at 0.03125, its own peak" in printed


def test_where_both_batches_end_alike_nothing_is_won_back(monkeypatch, capsys):
    printed = verdict(lambda *_: 70.0, monkeypatch, capsys)
    assert "No loss stands out of the noise at the peak of batch 16" in printed
    assert "Raise count (128), epochs (3) and tries (4)" in printed
    assert "won back" not in printed


def test_of_sixty_pairs_of_batches_that_end_alike_few_are_said_to_lose(monkeypatch, capsys):
    """Three standard errors of four pairs, on one side: 3 of 100 by chance. The seeds are not those
    of the climb, so that its choice of the best adds nothing.
    """
    lose = 0
    for number in range(60):
        printed = verdict(lambda *_: 70.0, monkeypatch, capsys, first_seed=4 * number)
        lose += "won back" in printed
    assert lose <= 6


def test_what_batch_16_has_hardly_learned_cannot_be_lost(monkeypatch, capsys):
    accuracy_of = hill(top={16: 1 / 4, 64: 1}, high={16: 14.0, 64: 11.0})
    printed = verdict(accuracy_of, monkeypatch, capsys)
    assert "Batch 16 learned little: 1" in printed
    assert "won back" not in printed
