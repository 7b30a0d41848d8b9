"""Variants of a training in turn: medians by hand, reasons instead of numbers."""

from dataclasses import replace

import numpy as np
import torch
from made_up import network, shapes, weights

from labkit.train import History, TrainConfig, Variants, run_variants

BASELINE = TrainConfig(batch=20, workers=0, update="loop")


def history(seconds, data):
    phases = {"data": data, "forward": 0.1, "backward": 0.2, "optimizer": 0.3}
    return History(losses=[0.0] * 6, epoch_seconds=[99.0, seconds], epoch_phases=[{}, phases])


def test_a_row_holds_the_medians_of_the_counted_epochs_and_the_ratio_compares_within_rounds():
    runs = {"baseline": [history(s, 0.5) for s in (2.0, 4.0, 3.0)], "half": [history(s, 0.1) for s in (1.0, 2.0, 1.5)]}
    found = Variants(dict.fromkeys(runs, BASELINE), runs, {}, torch.device("cpu"), 1)
    first, second = found.rows("training-phases", model="m", dataset="d")
    assert (first.total_s, second.total_s, second.data_s) == (3.0, 1.5, 0.1)
    assert second.images == 3 * 20
    assert tuple(found.ratio("half")) == (2.0, 2.0)


def test_every_variant_runs_in_every_round_and_the_model_stays_as_it_was():
    model = network()
    before = weights(model)
    variants = {
        "baseline": BASELINE,
        "foreach": replace(BASELINE, update="foreach"),
        "compile": replace(BASELINE, workers=None),
    }
    found = run_variants(model, shapes(), variants, device="cpu", rounds=2)
    assert {name: len(runs) for name, runs in found.histories.items()} == dict.fromkeys(variants, 2)
    assert torch.equal(weights(model), before)
    row = found.rows("s", model="m", dataset="d")[1]
    parts = [row.data_s, row.forward_s, row.backward_s, row.optimizer_s]
    assert all(part > 0 for part in parts)
    assert sum(np.array(parts)) <= row.total_s * 1.5


def test_what_does_nothing_here_or_cannot_run_is_a_row_with_a_reason_and_no_number(monkeypatch):
    monkeypatch.delattr(torch.jit, "script")
    variants = {
        "baseline": BASELINE,
        "pinned memory": replace(BASELINE, pin_memory=True),
        "TorchScript": replace(BASELINE, torchscript=True),
        "all": replace(BASELINE, pin_memory=True, update="fused"),
    }
    rows = run_variants(network(), shapes(40), variants, device="cpu", rounds=1).rows("s", model="m", dataset="d")
    by_name = {row.variant: row for row in rows}
    assert by_name["pinned memory"].total_s is None
    assert "nothing is copied to a GPU" in by_name["pinned memory"].reason
    assert "torch.jit.script" in by_name["TorchScript"].reason or "script" in by_name["TorchScript"].reason
    assert by_name["all"].total_s > 0
    assert by_name["all"].reason is None
