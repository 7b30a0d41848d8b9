"""The largest batches: LARS and the schedule are those of the lesson, and each setting gives a
row.
"""

import copy

import pytest
import torch
from torch import nn

from labkit.experiments import Scale, exascale_batches
from labkit.ledger import published, recorded
from labkit.lesson.exercises import l07_large_batch_tricks as lesson


def test_its_lars_takes_the_steps_of_the_lessons_lars():
    torch.manual_seed(0)
    ours = nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4), nn.Linear(4, 3))
    theirs = copy.deepcopy(ours)
    pairs = [
        (ours, exascale_batches.lars(ours.parameters(), lr=0.2)),
        (theirs, lesson.LARS(theirs.parameters(), 0.2)),
    ]
    x = torch.randn(8, 6)
    for _ in range(3):
        for network, optimizer in pairs:
            optimizer.zero_grad()
            network(x).square().mean().backward()
            optimizer.step()
    for mine, reference in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert torch.allclose(mine, reference, atol=1e-6)


def test_its_schedule_is_the_reference_of_the_lesson():
    for steps in (8, 16, 512):
        ours = [exascale_batches.rise_stay_fall(step, steps) for step in range(steps + 1)]
        assert ours == pytest.approx([lesson.my_schedule(step, steps) for step in range(steps + 1)])


def test_each_setting_gives_a_row_at_half_of_the_images_and_at_all_of_them(monkeypatch):
    monkeypatch.setattr(exascale_batches, "_count", lambda scale: 256)
    rows = list(
        exascale_batches.measure(Scale(quick=True, seconds=1.0, device=torch.device("cpu")))
    )
    variants = [row.variant for row in rows]
    assert variants[0] == "SGD, same learning rate, batch 64"
    assert [variant for variant in variants if "LARS" in variant] == [
        "LARS, batch 128",
        "LARS, batch 256",
    ]
    assert len(set(variants)) == 9
    assert all(0.05 < row.accuracy < 1 for row in rows)
    assert rows[0].images == 8 * 256


def test_what_is_on_record_has_the_sizes_of_the_published_table():
    rows = recorded("trainings", experiment="exascale-batches")
    variants = set(rows[rows["profile"] == "lab"]["variant"])
    assert {
        "LARS, batch 16,384",
        "LARS, batch 32,768",
        "SGD, same learning rate, batch 64",
    } <= variants
    assert 32_768 in set(published.table("exascale-batches")["batch"])
