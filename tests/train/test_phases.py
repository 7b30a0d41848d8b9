"""Laps on the simulated machine, whose true times are known, and with a device's own marks."""

import pytest

from labkit.measure import Clock, SimulatedMachine
from labkit.train import Laps

TRUE = {"data": 1e-3, "forward": 4e-3, "backward": 8e-3, "optimizer": 2e-3}


def laps_of(machine, how, clock=None):
    lap = Laps(clock or machine.clock, how)
    for _ in range(2):  # epochs
        lap.start()
        for _ in range(5):
            for phase, seconds in TRUE.items():
                machine.work(seconds)()
                lap(phase)
        spent = lap.stop()
    return spent


def test_waiting_at_each_lap_books_the_true_times_of_a_device_with_a_queue():
    found = laps_of(SimulatedMachine(0, jitter=0, launch=1e-5), "synchronize")
    assert found == pytest.approx({phase: 5 * seconds for phase, seconds in TRUE.items()}, rel=0.02)


class Mark:
    """An event of a simulated device: it happens when the queue has come so far."""

    def __init__(self, machine):
        self.machine = machine

    def record(self):
        self.time = max(self.machine.time, self.machine.idle_at)

    def elapsed_time(self, other):
        return 1e3 * (other.time - self.time)


def test_marks_in_the_queue_book_the_true_times_without_waiting():
    machine = SimulatedMachine(0, jitter=0, launch=1e-5)
    waits = []
    clock = Clock(
        now=machine.now,
        synchronize=lambda: waits.append(1) or machine.synchronize(),
        event=lambda: Mark(machine),
    )
    found = laps_of(machine, "events", clock)
    assert found == pytest.approx({phase: 5 * seconds for phase, seconds in TRUE.items()}, rel=0.02)
    assert len(waits) == 4  # at the start and the end of both epochs


def test_without_being_asked_nothing_is_booked_and_nothing_waited_for():
    machine = SimulatedMachine(0, launch=1e-5)
    assert laps_of(machine, None) == {}


def test_time_between_epochs_belongs_to_no_phase():
    machine = SimulatedMachine(0, jitter=0)
    lap = Laps(machine.clock, "synchronize")
    for _ in range(2):
        machine.work(100.0)()  # a test of the model, say
        lap.start()
        machine.work(1.0)()
        lap("data")
        spent = lap.stop()
    assert spent == {"data": pytest.approx(1.0), "forward": 0, "backward": 0, "optimizer": 0}
