"""How flat the loss is around the solutions of trainings."""

import math
from functools import partial

import pytest

from labkit.data import load
from labkit.landscape import flatness
from labkit.models.cnn import cnn
from labkit.train import TrainConfig, sweep, workers

BASE = TrainConfig(optimizer="sgd", learning_rate=0.05, schedule="cosine", weight_decay=0.0, batch=64, epochs=1)


def test_flatness_is_measured_for_each_solution(monkeypatch):
    train = sweep.halved(load("fashion-mnist", "train", limit=256))
    monkeypatch.setattr(workers, "threads", lambda: 1)
    found = sweep.run({"a": BASE}, partial(cnn, 2), (train, None), seeds=[0])
    (row,) = flatness(found, train.subset(64))
    weights = [weight for weight in found[0].model.parameters() if weight.dim() > 1]
    assert row.length == pytest.approx(
        math.sqrt(sum(float(weight.detach().square().sum()) for weight in weights)), rel=1e-5
    )
    assert (row.name, row.seed) == ("a", 0)
    assert row.sharpness > 0
    assert row.by_slope + row.by_curvature == pytest.approx(row.sharpness, rel=0.3)  # the box is small
    without = row.sharpness - row.by_slope - row.by_curvature
    assert abs(without - row.by_skew) < abs(without)  # orders four, six, ... are what is left
