"""What only a GPU can show; skipped elsewhere."""

import pytest
import torch

from labkit.measure import Plan, compare, latency, memory

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


def multiply(size=1024):
    a = torch.ones(size, size, device="cuda")
    return lambda: a @ a


def test_events_and_the_wall_clock_agree_on_a_long_call():
    row = latency(multiply(4096), device="cuda", plan=Plan(seconds=0.5))
    assert row.device == "cuda"
    assert row.peak_bytes >= 3 * 4 * 4096**2
    assert row.p50_ms > 0.1


def test_a_comparison_runs_on_the_gpu():
    result = compare(
        {"one": multiply(), "two": multiply()},
        tolerance=1e-3,
        device="cuda",
        plan=Plan(seconds=0.5),
    )
    assert 0.5 < result["two"].median < 2


def test_peak_memory_is_the_gpu_s():
    assert memory(multiply(), device="cuda").peak_bytes > 0
