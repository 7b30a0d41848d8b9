"""Profiles of small programs whose operators are known."""

import json
from types import SimpleNamespace

import pytest
import torch

from labkit.measure.profiling import Profile, profile


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


def event(name, device, self_cpu, self_device):
    """An average as torch.profiler gives it; times in µs."""
    times = {"self_cpu_time_total": self_cpu, "cpu_time_total": self_cpu}
    times |= {"self_device_time_total": self_device, "device_time_total": self_device}
    return SimpleNamespace(key=name, count=2, device_type=SimpleNamespace(name=device), **times)


def test_on_a_gpu_an_operator_has_the_time_of_its_kernel_and_the_kernel_is_no_row_of_its_own():
    averages = [
        event("aten::mm", "CPU", 3, 40),
        event("sm80_gemm", "CUDA", 0, 40),
        event("launch", "CPU", 9, 0),
    ]
    table = Profile(SimpleNamespace(key_averages=lambda: averages), calls=2).operators()
    assert table.to_dict("records") == [
        {"operator": "aten::mm", "calls": 1, "self_ms": 0.02, "total_ms": 0.02},
        {"operator": "launch", "calls": 1, "self_ms": 0, "total_ms": 0},
    ]


def test_the_trace_file_is_one_that_perfetto_reads(seen, tmp_path):
    seen.save_trace(tmp_path / "trace.json")
    page = json.loads((tmp_path / "trace.json").read_text())
    assert "aten::mm" in {event.get("name") for event in page["traceEvents"]}
