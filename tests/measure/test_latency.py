"""Latency and throughput on the simulated machine, where the truth is known."""

import subprocess
import sys
import time
from dataclasses import replace

import pytest

from labkit import ledger
from labkit.ledger.rows import Latency
from labkit.measure import Plan, SimulatedMachine, latency
from labkit.measure.clock import Clock, is_stable
from labkit.measure.latency import times_as_long
from labkit.measure.noise import read_usage


def test_the_median_of_a_steady_machine_is_its_true_time():
    machine = SimulatedMachine(0, jitter=0.01)
    row = latency(machine.work(2e-3), device=machine.clock)
    assert row.p50_ms == pytest.approx(2, rel=0.01)
    assert row.low_ms <= 2 <= row.high_ms
    assert not row.noisy


def test_throughput_is_the_batch_over_the_mean_so_that_late_calls_count():
    machine = SimulatedMachine(0, jitter=0)
    took = iter([4e-3, 4e-3, 4e-3, 8e-3] * 1000)

    def call():
        machine.time += next(took)

    row = latency(call, device=machine.clock, batch=8, plan=Plan(seconds=2))
    assert row.p50_ms == pytest.approx(4)
    assert row.throughput_per_s == pytest.approx(8 / 5e-3, rel=0.02)


def test_the_first_call_is_kept_apart():
    machine, calls = SimulatedMachine(0), []

    def call():
        calls.append(1)
        machine.time += 0.5 if len(calls) == 1 else 1e-3

    row = latency(call, device=machine.clock)
    assert row.cold_ms == pytest.approx(500)
    assert max(row.samples_ms) < 2


def test_warm_up_is_over_when_two_windows_agree():
    assert not is_stable([1.0] * 9)
    assert is_stable([9.0, 5.0] + [1.0] * 10)
    assert not is_stable([2.0] * 5 + [1.0] * 5)


def test_warm_up_lasts_until_calls_are_stable_however_long_that_takes():
    def run(slow_calls):
        machine, calls = SimulatedMachine(0), []

        def call():
            calls.append(1)
            machine.time += 1e-3 * (1 + 2 * 0.5 ** (len(calls) / slow_calls))

        return latency(call, device=machine.clock)

    quick, slow = run(2), run(20)
    assert quick.warm and slow.warm
    assert slow.warmup_calls > 3 * quick.warmup_calls


def test_warm_up_that_never_ends_is_cut_short_and_said():
    machine = SimulatedMachine(0, jitter=0)
    speed = iter(range(1, 100_000))

    def call():
        machine.time += 1e-3 * 1.1 ** (next(speed) % 60)

    assert latency(call, device=machine.clock, plan=Plan(seconds=0.2)).warm is False


def test_without_synchronising_only_the_launch_is_timed():
    machine = SimulatedMachine(0, launch=5e-6)
    work = machine.work(10e-3)
    careless = Clock(device="simulated", now=machine.now, usage=machine.usage)
    assert latency(work, device=careless, plan=Plan(seconds=0.01)).p50_ms == pytest.approx(
        0.005, rel=0.01
    )
    machine.synchronize()
    assert latency(work, device=machine.clock).p50_ms == pytest.approx(10, rel=0.02)


class Mark:
    """An event of a simulated device: it is reached when the queue before it is done."""

    def __init__(self, machine):
        self.machine = machine

    def record(self):
        self.at = max(self.machine.time, self.machine.idle_at)

    def elapsed_time(self, other):
        return 1e3 * (other.at - self.at)


def test_a_device_with_a_clock_of_its_own_is_timed_by_its_events():
    machine = SimulatedMachine(0, jitter=0, launch=5e-6)
    clock = Clock(
        "simulated", machine.now, machine.synchronize, lambda: Mark(machine), machine.usage
    )
    assert latency(machine.work(10e-3), device=clock).p50_ms == pytest.approx(10.005)


def test_sampling_ends_when_the_median_is_precise_enough():
    machine = SimulatedMachine(0, jitter=0.02)
    rough = latency(
        machine.work(20e-3),
        device=machine.clock,
        plan=Plan(seconds=600, precision=0.01, min_samples=20),
    )
    fine = latency(
        machine.work(20e-3),
        device=machine.clock,
        plan=Plan(seconds=600, precision=0.001, min_samples=20),
    )
    assert len(fine.samples_ms) > 10 * len(rough.samples_ms)
    assert (fine.high_ms - fine.low_ms) / 2 <= 0.001 * fine.p50_ms


def test_sampling_ends_when_the_seconds_are_over():
    machine = SimulatedMachine(0, jitter=0.5)
    latency(machine.work(1e-3), device=machine.clock, plan=Plan(seconds=0.5, precision=1e-9))
    assert machine.now() < 0.7


def test_slow_calls_get_the_six_samples_that_an_interval_needs():
    machine = SimulatedMachine(0, jitter=0.05)
    row = latency(machine.work(2.0), device=machine.clock, plan=Plan(seconds=0.1))
    assert len(row.samples_ms) == 6
    assert (row.low_ms, row.high_ms) == pytest.approx((min(row.samples_ms), max(row.samples_ms)))
    assert "throughput 0.488 items/s" in row.summary()


def test_fewer_samples_than_that_have_no_interval_and_say_so():
    machine = SimulatedMachine(0)
    row = latency(machine.work(1e-3), device=machine.clock, plan=Plan(max_samples=1))
    assert (row.low_ms, row.high_ms) == (None, None)
    assert "1 ms (no 95 % interval: too few samples)" in row.summary()
    assert str(times_as_long(row, row)) == "1.00 (no 95 % interval: n = 1)"


def test_a_percentile_without_enough_samples_is_none_with_a_reason():
    machine = SimulatedMachine(0)
    few = latency(
        machine.work(1e-3), device=machine.clock, plan=Plan(min_samples=129, max_samples=129)
    )
    assert (few.p95_ms, few.p99_ms) == (None, None)
    assert few.tail_reason == "p95 needs 130 samples, there are 129"
    assert "missing: p95 needs 130 samples, there are 129" in few.summary()
    some = latency(
        machine.work(1e-3), device=machine.clock, plan=Plan(min_samples=661, max_samples=661)
    )
    assert "missing: p99 needs 662 samples, there are 661" in some.summary()
    many = latency(machine.work(1e-3), device=machine.clock, plan=Plan(min_samples=662))
    assert many.p50_ms < many.p95_ms < many.p99_ms
    assert many.tail_reason is None


def test_calls_too_short_for_the_clock_are_timed_in_groups_and_have_no_tail():
    machine = SimulatedMachine(0, jitter=0)
    row = latency(machine.work(1e-6), device=machine.clock, plan=Plan(seconds=0.1))
    assert row.calls_per_sample == 20
    assert row.p50_ms == pytest.approx(1e-3)
    assert row.p95_ms is None and "too short" in row.tail_reason


def test_inputs_are_taken_in_turn():
    machine, seen = SimulatedMachine(0), []

    def call(value):
        seen.append(value)
        machine.time += 1e-3

    latency(call, device=machine.clock, inputs=["a", "b", "c"], plan=Plan(max_samples=30))
    assert set(seen) == {"a", "b", "c"}
    assert seen[-30:] == ["a", "b", "c"] * 10


@pytest.mark.parametrize(
    ("trouble", "word"),
    [
        ({"load": 0.9}, "other processes"),
        ({"drift": 3.0}, "last third"),
        ({"jitter": 0.5}, "middle half"),
    ],
)
def test_trouble_of_the_machine_is_named(trouble, word):
    machine = SimulatedMachine(0, **trouble)
    row = latency(machine.work(5e-3), device=machine.clock, plan=Plan(seconds=2, precision=0))
    assert row.noisy
    assert word in row.noise


def test_what_the_first_call_starts_is_no_noise_of_the_samples():
    """Counters of a made-up machine: the first call starts a compiler, which keeps the other
    core busy meanwhile.
    """
    machine, calls, compiled_s = SimulatedMachine(0), [], 2.0

    def call():
        calls.append(1)
        machine.time += compiled_s if len(calls) == 1 else 1e-3

    def usage():
        seen = machine.usage()
        return replace(seen, busy=seen.busy + (compiled_s if calls else 0.0))

    row = latency(call, device=replace(machine.clock, usage=usage), plan=Plan(seconds=0.5))
    assert row.cold_ms == pytest.approx(2000)
    assert not row.noisy, row.noise


BURN = "import time\nwhile time.process_time() < 1: pass"


def test_a_child_process_of_the_first_call_is_no_load_of_others():
    """On the real counters, whatever else the machine does: a window that began with the call
    would count the child.
    """
    windows = []

    def call():
        if not windows:
            windows.append(time.perf_counter())
            subprocess.run([sys.executable, "-c", BURN], check=True)
        time.sleep(1e-3)

    def usage():
        read.append(read_usage())
        return read[-1]

    read = []
    latency(call, device=Clock(usage=usage), plan=Plan(seconds=0.5))
    before, after = read
    assert before.wall > windows[0] + 1  # the child has ended: it computed for a second
    assert after.wall - before.wall < 0.5 * (after.wall - windows[0])


def test_two_clock_speeds_widen_the_interval_because_samples_repeat_each_other():
    def width(slow):
        machine = SimulatedMachine(3, jitter=0.02, slow=slow)
        row = latency(machine.work(1e-3), device=machine.clock, plan=Plan(seconds=1, precision=0))
        return row.high_ms - row.low_ms

    assert width(0.01) > 5 * width(0)


def test_a_row_fits_the_ledger_and_shows_itself(tmp_path):
    machine = SimulatedMachine(0)
    row = latency(machine.work(1e-3), device=machine.clock)
    ledger.add(row, path=tmp_path / "ledger.sqlite")
    [samples] = ledger.load("latencies", path=tmp_path / "ledger.sqlite")["samples_ms"]
    assert samples == row.samples_ms
    assert "median" in row.summary() and "<table>" in row._repr_html_()


def test_on_the_real_machine_a_row_says_where_it_comes_from():
    row = latency(lambda: sum(range(1000)), device="cpu", plan=Plan(seconds=0.05))
    assert row.device == "cpu"
    assert row.threads >= 1
    assert row.machine_key and row.measured_utc
    assert row.p50_ms > 0


def test_how_many_times_as_long_is_an_interval_from_the_ends_of_both():
    slow = Latency(
        device="cpu", batch=4, p50_ms=10.0, low_ms=8.0, high_ms=12.0, samples_ms=(10.0,) * 30
    )
    fast = Latency(
        device="cpu", batch=1, p50_ms=5.0, low_ms=4.0, high_ms=6.0, samples_ms=(5.0,) * 10
    )
    found = times_as_long(slow, fast)
    assert tuple(found) == pytest.approx((8 / 6, 12 / 4))
    assert (found.median, found.samples) == (2, 10)
    assert tuple(times_as_long(slow, fast, items=True)) == pytest.approx((8 / 24, 12 / 16))
