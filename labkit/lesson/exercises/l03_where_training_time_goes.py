"""Exercises of lesson 03: whose time is it, what a faster part is worth, and what loading in the background gives."""

from labkit.lesson.exercises import Exercise, expect, expect_close, shorten
from labkit.measure import SimulatedMachine

TRUE = {"forward": 20e-3, "backward": 40e-3, "optimizer": 15e-3}  # seconds on the simulated device


def phase_times(phases, now, synchronize):
    seconds = {}
    synchronize()
    for name, run in phases.items():
        begin = now()
        run()
        synchronize()
        seconds[name] = now() - begin
    return seconds


def verify_phase_times(answer):
    for seed, times in enumerate((TRUE, {"load": 5e-3, "train": 50e-3}, {"a": 30e-3, "b": 1e-3, "c": 2e-3, "d": 9e-3})):
        machine, calls = SimulatedMachine(seed, jitter=0, launch=50e-6), []
        machine.work(0.2)()  # what an earlier step left in the queue
        phases = {name: noted(calls, name, machine.work(seconds)) for name, seconds in times.items()}
        found = answer(phases, machine.now, machine.synchronize)
        expect(calls == list(times), f"Run each phase once, in order: {list(times)}; yours ran {calls}.")
        is_one = isinstance(found, dict) and set(found) == set(times)
        expect(is_one, f"Expected a dict with {list(times)}, found {shorten(found)}.")
        for place, (name, seconds) in enumerate(times.items()):
            queue = "" if place else " (0.2 s of earlier work was still in the queue)"
            expect_close(found[name], seconds, f"Seconds of {name}{queue}", tolerance=0.06)


def noted(calls, name, work):
    """`work`, which also writes `name` into `calls`."""

    def run():
        calls.append(name)
        return work()

    return run


def speedup_of_the_whole(share, factor):
    return 1 / (1 - share + share / factor)


def verify_speedup(answer):
    cases = {(0.5, 2): 4 / 3, (0.36, 1): 1.0, (1.0, 7): 7.0, (0.0, 100): 1.0, (0.36, 4): 1 / 0.73, (0.9, 10): 1 / 0.19}
    for (share, factor), wanted in cases.items():
        expect_close(answer(share, factor), wanted, f"speedup_of_the_whole({share}, {factor})")


def step_seconds(load, train, workers):
    return load + train if workers == 0 else max(load / workers, train)


def verify_step_seconds(answer):
    cases = {
        (10, 30, 0): 40,
        (10, 30, 1): 30,
        (90, 30, 1): 90,
        (90, 30, 2): 45,
        (90, 30, 3): 30,
        (90, 30, 8): 30,
        (9, 2, 4): 2.25,
    }
    for (load, train, workers), wanted in cases.items():
        expect_close(answer(load, train, workers), wanted, f"step_seconds({load}, {train}, {workers})")


EXERCISES = (
    Exercise(
        id="phase-times",
        task="Write which phase of a step takes how long on a device that works through a queue.",
        difficulty=2,
        minutes=10,
        hint="The clock may start only when the queue is empty, and stop only when it is empty again; for every phase.",
        reference=phase_times,
        verify=verify_phase_times,
    ),
    Exercise(
        id="speedup-of-the-whole",
        task="Write how many times as fast the whole becomes when a part of it does.",
        difficulty=1,
        minutes=5,
        hint="Let the whole take 1. How long does the part take afterwards, and how long the rest?",
        reference=speedup_of_the_whole,
        verify=verify_speedup,
    ),
    Exercise(
        id="step-seconds",
        task="Write how long a step takes when worker processes load the next batches meanwhile.",
        difficulty=2,
        minutes=6,
        hint="With workers, loading and training go on at once and the slower sets the pace; without, they add up.",
        reference=step_seconds,
        verify=verify_step_seconds,
    ),
)
