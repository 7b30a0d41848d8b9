"""The phases of a training: each line of the published table gives a row, and the phases are
what was timed.
"""

import numpy as np
import pytest
import torch

from labkit.experiments import Scale, training_phases
from labkit.ledger import published, recorded

CPU = torch.device("cpu")


@pytest.mark.slow
def test_each_line_of_the_published_table_gives_a_row_and_a_fused_optimizer_one_more(monkeypatch):
    monkeypatch.setattr(training_phases, "FIRST", 1)
    rows = {
        row.variant: row
        for row in training_phases.measure(Scale(quick=True, seconds=0.0, device=CPU))
    }
    assert set(rows) == {*published.table("training-phases")["variant"], "fused optimizer"}
    for variant in ("pinned memory", "cuDNN autotuner", "all"):
        assert rows[variant].total_s is None
        assert "GPU" in rows[variant].reason
    for variant in ("baseline", "TorchScript", "fused optimizer"):
        row = rows[variant]
        assert min(row.data_s, row.forward_s, row.backward_s, row.optimizer_s) > 0
        assert row.images == 20 * 50_000


def test_twenty_epochs_are_as_many_times_the_median_step():
    seconds = np.array([[1.0, 2.0, 3.0, 4.0], [2.0, 2.0, 3.0, 4.0], [9.0, 9.0, 9.0, 9.0]])
    about = {
        "study": "s",
        "model": "m",
        "network": "m",
        "batch": 50_000,
        "dataset": "d",
        "device": "cpu",
    }
    row = training_phases._row("baseline", seconds, about)
    assert (row.data_s, row.forward_s, row.backward_s, row.optimizer_s) == (40, 40, 60, 80)
    assert row.total_s == 20 * 11
    assert row.images == 20 * 50_000


def test_a_fused_optimizer_takes_the_same_step():
    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 32 * 32, 100))
    pictures, _ = training_phases._pictures()
    trained = {}
    for name in ("baseline", "TorchScript", "fused optimizer"):
        switches = training_phases.VARIANTS[name]
        trainer = training_phases.Trainer(network, pictures, switches, batch=4, device=CPU)
        assert trainer.step().shape == (4,)
        trained[name] = (
            trainer.network[1].weight
            if name != "TorchScript"
            else next(trainer.network.parameters())
        )
    for weight in trained.values():
        assert torch.allclose(weight, trained["baseline"], atol=1e-6)
        assert not torch.equal(weight, network[1].weight)


def test_what_is_on_record_has_phases_that_add_up_to_the_total():
    rows = recorded("trainings", experiment="training-phases")
    rows = rows[rows["total_s"].notna() & (rows["profile"] == "lab")]
    assert "baseline" in set(rows["variant"])
    parts = rows[["data_s", "forward_s", "backward_s", "optimizer_s"]].astype(float).sum(axis=1)
    assert (parts / rows["total_s"].astype(float)).tolist() == pytest.approx(
        [1.0] * len(rows), abs=0.05
    )
