"""The energy of a call: from counters that are made up, and a reason where there is none."""

import sys
from types import SimpleNamespace

import pytest
import torch

from labkit.measure import energy as call_energy

counters = sys.modules["labkit.measure.energy"]


class Package:
    """A processor's counter in a folder, as Linux shows it."""

    def __init__(self, folder, start, largest=10_000_000):
        folder.mkdir()
        self.file = folder / "energy_uj"
        self.largest = largest
        (folder / "max_energy_range_uj").write_text(f"{largest}\n")
        self.file.write_text(f"{start}\n")

    def spend(self, microjoules):
        self.file.write_text(f"{(int(self.file.read_text()) + microjoules) % self.largest}\n")


@pytest.fixture
def powercap(monkeypatch, tmp_path):
    monkeypatch.setattr(counters, "POWERCAP", tmp_path)
    return tmp_path


def test_a_call_has_the_joules_that_the_counter_says_for_each_call(powercap):
    package = Package(powercap / "intel-rapl:0", start=500)
    found = call_energy(lambda: package.spend(2_000), seconds=0.01)
    assert found.joules == pytest.approx(2e-3)
    assert (found.counter, found.reason) == ("RAPL", None)


def test_all_processors_are_added_and_their_parts_are_not_counted_twice(powercap):
    packages = [Package(powercap / f"intel-rapl:{number}", start=0) for number in range(2)]
    core = Package(powercap / "intel-rapl:0:0", start=0)

    def call():
        for package in (*packages, core):
            package.spend(1_000)

    assert call_energy(call, seconds=0).joules == pytest.approx(2e-3)


def test_a_counter_that_begins_again_at_zero_is_understood(powercap):
    package = Package(powercap / "intel-rapl:0", start=9_999_000)
    package.file.write_text("9998000\n")
    assert call_energy(lambda: package.spend(1_500), seconds=0).joules == pytest.approx(1.5e-3)


def test_a_machine_without_a_counter_says_so(powercap):
    found = call_energy(lambda: None, seconds=0)
    assert found.joules is None and found.counter is None
    assert "no counter of energy" in found.reason


def test_a_counter_that_only_an_administrator_may_read_is_a_reason_of_its_own(
    powercap, monkeypatch
):
    Package(powercap / "intel-rapl:0", start=0)

    def refuse(folder, name):
        raise PermissionError

    monkeypatch.setattr(counters, "_number", refuse)
    assert "administrator" in call_energy(lambda: None, seconds=0).reason


def test_a_counter_that_shows_no_number_is_no_counter(powercap):
    Package(powercap / "intel-rapl:0", start=0).file.write_text("")
    assert "no counter of energy" in call_energy(lambda: None, seconds=0).reason


def test_a_gpu_is_read_in_millijoules(monkeypatch):
    spent = SimpleNamespace(millijoules=7)
    driver = SimpleNamespace(
        NVMLError=RuntimeError, nvmlDeviceGetTotalEnergyConsumption=lambda handle: spent.millijoules
    )

    def call():
        spent.millijoules += 3

    monkeypatch.setitem(sys.modules, "pynvml", driver)
    monkeypatch.setattr(counters, "gpu_handle", lambda uuid: "handle")
    monkeypatch.setattr(
        counters, "clock_of", lambda device: SimpleNamespace(synchronize=lambda: None)
    )
    monkeypatch.setattr(
        torch.cuda, "get_device_properties", lambda device: SimpleNamespace(uuid="1")
    )
    found = call_energy(call, seconds=0, device=torch.device("cuda"))
    assert found.joules == pytest.approx(3e-3)
    assert found.counter == "NVML"


def test_a_driver_without_the_counter_says_so(monkeypatch):
    class NotSupportedError(Exception):
        pass

    def refuse(handle):
        raise NotSupportedError

    driver = SimpleNamespace(
        NVMLError=NotSupportedError, nvmlDeviceGetTotalEnergyConsumption=refuse
    )
    monkeypatch.setitem(sys.modules, "pynvml", driver)
    monkeypatch.setattr(counters, "gpu_handle", lambda uuid: "handle")
    monkeypatch.setattr(
        counters, "clock_of", lambda device: SimpleNamespace(synchronize=lambda: None)
    )
    monkeypatch.setattr(
        torch.cuda, "get_device_properties", lambda device: SimpleNamespace(uuid="1")
    )
    assert "driver" in call_energy(lambda: None, seconds=0, device=torch.device("cuda")).reason
