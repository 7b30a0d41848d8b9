"""Profiles of small programs whose operators are known."""

import json

import pytest
import torch

from labkit.measure.profiling import profile


@pytest.fixture(scope="module")
def seen():
    x = torch.ones(64, 64)
    return profile(lambda: (x @ x).relu() + 1, calls=4)


def test_the_table_counts_operators_per_call(seen):
    table = seen.operators().set_index("operator")
    assert table.loc[["aten::mm", "aten::relu", "aten::add"], "calls"].tolist() == [1, 1, 1]
    assert (table["total_ms"] >= table["self_ms"]).all()


def test_the_table_is_sorted_and_cut(seen):
    assert seen.operators(top=2)["self_ms"].is_monotonic_decreasing
    assert len(seen.operators(top=2)) == 2


def test_the_trace_file_is_one_that_perfetto_reads(seen, tmp_path):
    page = json.loads(seen.save_trace(tmp_path / "trace.json").read_text())
    assert "aten::mm" in {event.get("name") for event in page["traceEvents"]}
