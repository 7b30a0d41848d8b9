"""Energy with counters made of numbers."""

import importlib

import pytest

from labkit import ledger
from labkit.measure import SimulatedMachine, clock_of
from labkit.measure import _counters as counters
from labkit.measure import energy as measure_energy
from labkit.measure.energy import _used


def test_a_counter_that_starts_again_is_unwrapped():
    assert _used([(90.0, 100.0), (1.0, 100.0)], [(20.0, 100.0), (5.0, 100.0)]) == 34


def fake_rapl(folder, joules=5.0):
    domain = folder / "intel-rapl:0"
    domain.mkdir()
    (domain / "energy_uj").write_text(f"{int(joules * 1e6)}\n")
    (domain / "max_energy_range_uj").write_text("262143328850\n")
    (folder / "intel-rapl:0:0").mkdir()  # a part of the package: counted already


def test_the_packages_of_rapl_are_read_in_joules(tmp_path, monkeypatch):
    fake_rapl(tmp_path)
    monkeypatch.setattr(counters, "POWERCAP", tmp_path)
    assert counters.rapl_energy_j(counters.rapl_domains()) == [(5.0, pytest.approx(262143.32885))]


def test_without_a_counter_there_is_a_reason_and_a_next_step(monkeypatch, tmp_path):
    monkeypatch.setattr(counters, "POWERCAP", tmp_path / "none")
    row = measure_energy(lambda: 1, device="cpu")
    assert row.joules_per_item is None
    assert "not readable" in row.reason and "chmod" in row.fix
    ledger.add(row, path=tmp_path / "ledger.sqlite")


def test_joules_an_item_divide_by_calls_and_batch(monkeypatch):
    machine = SimulatedMachine(0, jitter=0)
    monkeypatch.setattr(
        importlib.import_module("labkit.measure.energy"),
        "energy_counter",
        lambda device: ("RAPL", lambda: [(30 * machine.time, 1e9)]),
    )
    row = measure_energy(machine.work(0.1), device=machine.clock, batch=4, seconds=1)
    assert row.joules_per_item == pytest.approx(30 * 0.1 / 4)
    assert row.seconds == pytest.approx(2, abs=0.11)
    assert "30 W" in row.summary()


def test_the_clock_of_a_device_is_taken_as_it_is():
    clock = SimulatedMachine().clock
    assert clock_of(clock) is clock
