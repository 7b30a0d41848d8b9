"""Rooflines worked out by hand; ceilings on the simulated clock and, briefly, on the machine."""

import dataclasses
import sys

import pytest

from labkit import device, ledger
from labkit.errors import MeasureError
from labkit.ledger.rows import Ceiling
from labkit.measure import SimulatedMachine, ceilings, roofline
from labkit.measure.roofline import _matmul_ceiling

ROOFS = (
    Ceiling(run_key="", name="copy", device="cpu", threads=1, bytes_per_s=10e9),
    Ceiling(run_key="", name="matmul-fp32", device="cpu", threads=1, ops_per_s=100e9),
    Ceiling(run_key="", name="matmul-int8", device="cpu", threads=1, reason="not here"),
)


def test_left_of_the_ridge_memory_is_the_roof_and_right_of_it_arithmetic():
    # 2 operations a byte allow 20 Gop/s; 1e9 operations in 0.1 s are 10 Gop/s.
    assert roofline(0.1, ops=1e9, bytes_moved=0.5e9, ceilings=ROOFS) == pytest.approx(0.5)
    assert roofline(0.1, ops=8e9, bytes_moved=0.1e9, ceilings=ROOFS) == pytest.approx(0.8)


def test_a_result_above_the_roof_is_refused():
    with pytest.raises(MeasureError, match=r"1\.25 times the machine's best.*\n.*at most 100 Gop/s"):
        roofline(0.1, ops=12.5e9, bytes_moved=0.1e9, ceilings=ROOFS)


def test_a_result_a_little_above_the_roof_is_within_the_slack():
    assert roofline(0.1, ops=10.5e9, bytes_moved=0.1e9, ceilings=ROOFS) == pytest.approx(1.05)


def busy_for(seconds, monkeypatch, *, rate=100e9):
    """The clock of a machine that multiplies at `rate`, and whose threads wait 40 ms for a core a call at first."""
    machine = SimulatedMachine(jitter=0.0)

    def product(size, precision, device):
        def call():
            machine.time += 2 * size**3 / rate + (0.04 if machine.time < seconds else 0.0)

        return call

    monkeypatch.setattr(sys.modules["labkit.measure.roofline"], "_product", product)
    return dataclasses.replace(machine.clock, device="cpu")


def test_threads_that_had_to_wait_do_not_lower_the_ceiling(monkeypatch):
    clock = busy_for(0.4, monkeypatch)
    assert _matmul_ceiling(clock, 1.0, "fp32")["ops_per_s"] == pytest.approx(100e9)


def test_on_a_machine_that_stays_busy_the_ceiling_comes_from_the_largest_size(monkeypatch):
    clock = busy_for(1e9, monkeypatch)
    work = 2 * 2048**3
    assert _matmul_ceiling(clock, 1.0, "fp32")["ops_per_s"] == pytest.approx(work / (work / 100e9 + 0.04))
    assert clock.now() < 2.5


def test_a_machine_that_crawls_is_left_alone_after_the_sizes_that_fit(monkeypatch):
    clock = busy_for(0, monkeypatch, rate=1e9)
    assert _matmul_ceiling(clock, 1.0, "bf16")["ops_per_s"] == pytest.approx(1e9)
    assert clock.now() < 2.5


def test_a_precision_without_a_ceiling_is_refused():
    with pytest.raises(MeasureError, match="copy and matmul-int8"):
        roofline(0.1, ops=1e9, bytes_moved=1e9, precision="int8", ceilings=ROOFS)


def test_every_ceiling_has_a_rate_or_a_reason(tmp_path, monkeypatch):
    monkeypatch.setattr(device, "cache_bytes", lambda device: 2**20)
    rows = ceilings(device="cpu", seconds=0.2)
    assert [row.name for row in rows] == ["copy", "matmul-fp32", "matmul-bf16", "matmul-int8"]
    assert all((row.bytes_per_s or row.ops_per_s or 0) > 0 or row.reason for row in rows)
    ledger.add(*rows, path=tmp_path / "ledger.sqlite")
    only = ceilings(device="cpu", seconds=0.1, precisions=("fp32",))
    assert [row.name for row in only] == ["copy", "matmul-fp32"]
