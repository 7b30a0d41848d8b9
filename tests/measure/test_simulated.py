"""The simulated machine keeps its own laws."""

import numpy as np
import pytest

from labkit.measure import SimulatedMachine


def times(machine, count=2000, seconds=1e-3):
    call = machine.work(seconds)
    return np.array([machine.clock.time(call)[0] for _ in range(count)])


def test_without_trouble_every_call_takes_its_time():
    assert times(SimulatedMachine(0, jitter=0)) == pytest.approx(1e-3)


def test_the_same_seed_gives_the_same_series():
    assert np.array_equal(
        times(SimulatedMachine(5, spikes=0.1)), times(SimulatedMachine(5, spikes=0.1))
    )


def test_spikes_come_as_often_as_asked_and_double_the_time_at_least():
    assert np.mean(times(SimulatedMachine(0, jitter=0, spikes=0.1)) > 1.9e-3) == pytest.approx(
        0.1, abs=0.02
    )


def test_the_slow_clock_is_seventy_percent_of_the_fast_one():
    assert set(np.round(times(SimulatedMachine(0, jitter=0, slow=0.1)) * 0.7e3, 6)) == {0.7, 1.0}


def test_drift_makes_later_calls_longer():
    series = times(SimulatedMachine(0, jitter=0, drift=1.0))
    assert series[-1] > 2 * series[0]


def test_a_queue_returns_at_once_and_is_done_after_synchronising():
    machine = SimulatedMachine(0, jitter=0, launch=1e-6)
    call = machine.work(1e-3)
    for _ in range(10):
        call()
    assert machine.now() == pytest.approx(10e-6)
    machine.synchronize()
    assert machine.now() == pytest.approx(10e-3, rel=0.01)


def test_load_shows_in_the_counters():
    machine = SimulatedMachine(0, load=0.5)
    times(machine)
    assert machine.usage().busy - machine.usage().process == pytest.approx(0.5 * machine.now())


def test_work_answers_what_it_was_told():
    assert SimulatedMachine().work(1e-3, answer=7.0)("anything") == 7.0


def test_a_call_after_one_of_another_function_pays_for_a_cold_cache():
    machine = SimulatedMachine(jitter=0)
    large, small = machine.work(1e-3, cold=1e-4), machine.work(5e-4, cold=3e-4)
    seconds = [machine.clock.time(call)[0] for call in (large, large, small, small, large)]
    assert seconds == pytest.approx([1.1e-3, 1e-3, 8e-4, 5e-4, 1.1e-3])
