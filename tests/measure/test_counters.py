"""The hardware's counters, with files and a driver made up for the test."""

import pynvml
import pytest

from labkit.device import machine
from labkit.measure import noise as counters


@pytest.fixture
def driver(monkeypatch):
    """An NVIDIA driver that answers: slowed by power and heat, two processes."""
    answers = {
        "nvmlDeviceGetCurrentClocksEventReasons": 0x4 | 0x40 | 0x1,
        "nvmlDeviceGetComputeRunningProcesses": [
            type("Process", (), {"pid": pid}) for pid in (1, 2)
        ],
    }
    for name, answer in answers.items():
        monkeypatch.setattr(pynvml, name, lambda *_, answer=answer: answer)
    monkeypatch.setattr(counters, "gpu_handle", lambda uuid: "handle")


def test_a_gpu_tells_its_brakes_and_its_other_users(driver):
    state = counters._gpu_state("some-uuid")
    assert state == {"gpu_throttle": "power cap, thermal (hardware)", "other_gpu_processes": 1}


def test_of_a_gpu_that_no_driver_knows_nothing_is_told_and_nothing_is_asked(monkeypatch):
    def refuse(*_):
        pytest.fail("asked with no handle, which ends the process where there is a driver")

    monkeypatch.setattr(pynvml, "nvmlDeviceGetCurrentClocksEventReasons", refuse)
    counters.gpu_handle.cache_clear()
    assert counters._gpu_state("no such gpu") == {}


def test_a_counter_the_gpu_does_not_have_is_unknown(driver, monkeypatch):
    def refuse(*_):
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)

    monkeypatch.setattr(pynvml, "nvmlDeviceGetCurrentClocksEventReasons", refuse)
    assert counters._gpu_state("some-uuid") == {"other_gpu_processes": 1}


def test_the_last_level_cache_has_a_likely_size_or_is_unknown():
    size = machine.last_level_cache_bytes()
    assert size is None or 2**18 <= size <= 2**31
