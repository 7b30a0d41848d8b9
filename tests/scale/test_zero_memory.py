"""ZeRO's memory: the paper's own table, and its limits."""

import pytest

from labkit.errors import LabError
from labkit.ledger import published
from labkit.scale.memory import zero_bytes


@pytest.mark.parametrize(("stage", "gigabytes"), [(0, 120), (1, 31.4), (2, 16.6), (3, 1.88)])
def test_the_four_numbers_of_the_paper_for_7_5_billion_weights_on_64_gpus(stage, gigabytes):
    assert zero_bytes(7.5e9, 64, stage) / 1e9 == pytest.approx(gigabytes, rel=5e-3)
    table = published.table("zero").set_index("stage")
    assert float(table.memory_bytes[stage]) / 1e9 == pytest.approx(gigabytes, rel=2e-2)


def test_with_one_worker_every_stage_needs_the_same_and_more_workers_need_no_more():
    assert {zero_bytes(1e6, 1, stage) for stage in range(4)} == {16e6}
    for stage in range(4):
        needs = [zero_bytes(1e6, workers, stage) for workers in (1, 2, 8, 64)]
        assert needs == sorted(needs, reverse=True)


def test_plain_sgd_in_fp32_keeps_a_weight_and_a_gradient():
    assert zero_bytes(1e6, 4, 0, weight=4, gradient=4, optimizer=0) == 8e6


@pytest.mark.parametrize(("workers", "stage"), [(4, 4), (4, -1), (0, 1)])
def test_another_stage_or_no_worker_is_refused(workers, stage):
    with pytest.raises(LabError, match="no such setting"):
        zero_bytes(1e6, workers, stage)
