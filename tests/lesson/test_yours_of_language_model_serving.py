"""Yours of the lesson on serving a language model: several kinds of network, where labkit cannot be
imported.
"""

import time

import numpy as np
import pytest
import torch
from torch import nn
from yours import Encoder, TwoOutputs, run_yours

LESSON = "19_language_model_serving"
SHARE, ALONE = "Let those who wait share a call.", "Batches do not pay here"


class Sleeper(nn.Module):
    """Takes a millisecond for a call, or for each row of it, on a clock of its own."""

    def __init__(self, per_row):
        super().__init__()
        self.per_row, self.now = per_row, 0.0

    def perf_counter(self):
        return self.now

    def forward(self, x):
        self.now += 1e-3 * (len(x) if self.per_row else 1)
        return x


def run(network, inputs, monkeypatch):
    clock = network if isinstance(network, Sleeper) else time
    bound = {"np": np, "torch": torch, "time": clock}
    return run_yours(LESSON, bound, {"network": network, "inputs": inputs}, monkeypatch)


@pytest.mark.parametrize(
    ("network", "inputs"),
    [
        (Encoder(), torch.randint(50, (40, 6))),
        (TwoOutputs(), torch.randn(3, 12)),  # fewer inputs than rows of a call
    ],
    ids=["tokens", "two outputs"],
)
def test_yours_runs_on_networks_of_other_kinds_and_leaves_them_as_they_were(
    network, inputs, monkeypatch
):
    before = [weight.clone() for weight in network.parameters()]
    bound = run(network, inputs, monkeypatch)
    assert list(bound["my_ms"]) == [1, 2, 4, 8, 16]
    assert all(np.isfinite(bound["times"])) and min(bound["times"]) > 0
    assert all(map(torch.equal, before, network.parameters()))


def test_where_rows_cost_nothing_those_who_wait_share_a_call(monkeypatch, capsys):
    bound = run(Sleeper(per_row=False), torch.randn(20, 4), monkeypatch)
    assert min(bound["times"]) > 5
    assert SHARE in capsys.readouterr().out


def test_where_each_row_costs_as_much_as_a_call_batches_do_not_pay(monkeypatch, capsys):
    bound = run(Sleeper(per_row=True), torch.randn(20, 4), monkeypatch)
    assert max(bound["times"]) < 1.1
    assert ALONE in capsys.readouterr().out


def test_a_queue_worked_by_hand(monkeypatch):
    bound = run(Sleeper(per_row=False), torch.randn(20, 4), monkeypatch)
    bound["my_ms"].clear()
    bound["my_ms"].update({1: 10.0, 16: 10.0})
    late_ms = bound["late_ms"]
    # hardly anybody comes: each waits for a call of its own
    assert late_ms(0.001, 1, 0) == pytest.approx(10)
    # everybody comes at once, in 2,000 / 16 calls of 10 ms
    assert late_ms(1e12, 16, 0) == pytest.approx(0.95 * 2000 / 16 * 10, rel=0.02)
