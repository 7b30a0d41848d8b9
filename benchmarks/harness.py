"""What the measuring harness can be trusted with. About 20 minutes; `--quick` one.

Run on a machine that does nothing else: the figures of a busy machine say so in the line
`load_average`.
"""

import argparse
import copy
import functools
import itertools
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from figures import Figures
from torch.utils.benchmark import Timer

from labkit import engines, export, models
from labkit.device import using_threads
from labkit.lesson.verdicts import Bounds, of_claim, weigh
from labkit.measure import Plan, SimulatedMachine, compare, latency
from labkit.measure.stats import median_of_rounds

TRUE_RATIO = 1.05
MACHINE = {"jitter": 0.02, "drift": 0.05, "spikes": 0.03, "slow": 0.02}
BUSY = "while True: pass"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer repeats, under a minute")
    parser.add_argument(
        "--repeats", type=int, default=40, help="of each real measurement (the targets are for 40)"
    )
    parser.add_argument("--only", help="one part: " + ", ".join(PARTS))
    options, figures = parser.parse_args(), Figures()
    for name, part in PARTS.items():
        if options.only in (None, name):
            figures.part(name, part, options)
    figures.exit()


def coverage(figures, options):
    """Does the 95 % interval cover the true ratio, on a machine with drift, spikes and two
    clocks?
    """
    count = 300 if options.quick else 2000
    ours = np.mean([covers(interleaved(seed)) for seed in range(count)])
    plain = np.mean([covers(one_after_the_other(seed)) for seed in range(count)])
    # A short run proves less: allow for the two standard errors of its own count.
    slack = 2 * 100 * np.sqrt(0.95 * 0.05 / count) if options.quick else 0
    figures.add("simulated_coverage", 100 * ours, at_least=93 - slack, at_most=97 + slack, unit="%")
    figures.add("simulated_coverage_a_then_b", 100 * plain, at_most=92.99, unit="%")


def interleaved(seed):
    machine = SimulatedMachine(seed, **MACHINE)
    arms = {"a": machine.work(TRUE_RATIO * 1e-3), "b": machine.work(1e-3)}
    row = compare(arms, tolerance=0, device=machine.clock, plan=Plan(seconds=1, seed=seed))["b"]
    return row.low, row.high


def one_after_the_other(seed, count=100):
    """The interval of plain timing: all of A, then all of B, both medians bootstrapped."""
    machine, (a, b) = SimulatedMachine(seed, **MACHINE), ([], [])
    for seconds, samples in ((TRUE_RATIO * 1e-3, a), (1e-3, b)):
        call = machine.work(seconds)
        samples += [machine.clock.time(call)[0] for _ in range(count)]
    picks = np.random.default_rng(seed).integers(0, count, (2, 1000, count))
    ratios = np.median(np.array(a)[picks[0]], axis=1) / np.median(np.array(b)[picks[1]], axis=1)
    return np.quantile(ratios, [0.025, 0.975])


def covers(interval):
    return interval[0] <= TRUE_RATIO <= interval[1]


@functools.cache
def square(size):
    """One matrix for all arms: on some CPUs the same product is a percent slower where its
    memory lies elsewhere.
    """
    return torch.linspace(-1, 1, size * size).reshape(size, size)


def repeated(times, size=64):
    """`times` small matrix products, one after the other; the answer is that of one."""
    x = square(size)

    def run():
        for _ in range(times):
            product = x @ x
        return product

    return run


def same(figures, options):
    """A against an identical A: is it called different, and how narrow are the intervals?"""
    plan = Plan(seconds=1 if options.quick else 5)
    rows = [
        compare({"a": repeated(100), "b": repeated(100)}, tolerance=0, plan=plan)["b"]
        for _ in repeats(5, options)
    ]
    different = 100 * np.mean([row.verdict != "not distinguishable" for row in rows])
    figures.add("same_called_different", different, at_most=5, unit="%")
    width = 100 * np.median([(row.high - row.low) / 2 for row in rows])
    figures.add("same_half_width", width, at_most=2, unit="%")


def three_percent(figures, options):
    """100 against 103 of the same small products: is the difference found, and by torch's own
    timer?
    """
    found, torch_found, seconds = [], [], []
    for _ in repeats(3, options):
        a, b = repeated(100), repeated(103)
        begin = time.perf_counter()
        row = compare({"a": a, "b": b}, tolerance=0, plan=Plan(seconds=2 if options.quick else 20))[
            "b"
        ]
        seconds.append(time.perf_counter() - begin)
        found.append(row.verdict == "slower")
        torch_found.append(torch_says_slower(a, b, seconds[-1]))
    figures.add(
        "found_3_percent", 100 * np.mean(found), at_least=50 if options.quick else 95, unit="%"
    )
    figures.add("found_3_percent_longest", max(seconds), at_most=30, unit="s")
    figures.add("torch_benchmark_found_3_percent", 100 * np.mean(torch_found), unit="%")


def torch_says_slower(a, b, seconds):
    """torch.utils.benchmark on the same two, in the same time: one after the other, 95 %
    intervals of both medians.
    """
    intervals = []
    for fn in (a, b):
        times = Timer("fn()", globals={"fn": fn}).blocked_autorange(min_run_time=seconds / 2).times
        intervals.append(median_of_rounds(times))
    return intervals[1].low > intervals[0].high


def noise(figures, options):
    """Is a machine whose cores are all busy called noisy, and a quiet one not?"""
    plan = Plan(seconds=1)
    quiet = flagged(plan, repeats(6, options), shown=40)
    with busy_jobs():
        busy = flagged(plan, repeats(6, options), shown=1)
    figures.add("busy_flagged_noisy", busy, at_least=95, unit="%")
    figures.add("quiet_flagged_noisy", quiet, at_most=5, unit="%")


def loaded(figures, options):
    """100 against 105 of the same small products, on one thread beside a busy job a core: found,
    and covered?
    """
    plan = Plan(seconds=2 if options.quick else 5)
    with busy_jobs(), using_threads(1):
        rows = [
            compare({"a": repeated(100), "b": repeated(105)}, tolerance=0, plan=plan)["b"]
            for _ in repeats(6, options)
        ]
    for row in rows[:3]:
        print(f"# {1 / row.high:.4f} to {1 / row.low:.4f}: {row.noise}")
    found = 100 * np.mean([row.verdict == "slower" for row in rows])
    covered = 100 * np.mean([covers((1 / row.high, 1 / row.low)) for row in rows])
    figures.add("loaded_found_5_percent", found, at_least=95, unit="%")
    figures.add("loaded_covers_5_percent", covered, at_least=80 if options.quick else 90, unit="%")


def sessions(figures, options):
    """One ONNX file in fresh sessions: how often is it called different from itself, by either null
    arm?

    Without a second session the first one is called twice a round, and finds its weights in the
    cache more often.
    """
    torch.manual_seed(0)
    network, called = models.build("cnn-small")[0].eval(), {"same": [], "second": []}
    with tempfile.TemporaryDirectory() as folder, using_threads(1):
        path, image = Path(folder) / "network.onnx", models.example("cnn-small", 1)
        export.to_onnx(network, models.example("cnn-small", 2), path)
        for _ in repeats(5, options):
            first, again, other = (
                engines.load("onnxruntime", path, image, threads=1) for _ in range(3)
            )
            for null, second in {"same": None, "second": again}.items():
                arms = {"a": first, "b": other}
                row = compare(
                    arms, second_session=second, inputs=[image], tolerance=0, device="cpu"
                )["b"]
                called[null].append(row.verdict != "not distinguishable")
    figures.add("sessions_called_different_same_session", 100 * np.mean(called["same"]), unit="%")
    at_most = 20 if options.quick else 5
    figures.add(
        "sessions_called_different", 100 * np.mean(called["second"]), at_most=at_most, unit="%"
    )


def flips(figures, options):
    """Twenty races of engines, each in ten fresh sessions: how often does a claim change from holds
    to fails, or back?

    The bound is the worst one for that: the ratio of the first session. Times as fast as eager, one
    thread.
    """
    names = ("cnn-small", "cnn-medium", "vgg-small", "mobilenet-mini", "encoder-small")[
        : 2 if options.quick else 5
    ]
    fresh, plan, judged, flipped = 3 if options.quick else 10, Plan(seconds=1), 0, 0
    for name, batch in itertools.product(names, (1, 8)):
        with tempfile.TemporaryDirectory() as folder, using_threads(1):
            torch.manual_seed(0)
            network, path, inputs = (
                models.build(name)[0].eval(),
                Path(folder) / "n.onnx",
                models.example(name, batch),
            )
            export.to_onnx(network, models.example(name, 2), path)
            rows = [one_race(network, path, inputs, plan) for _ in range(fresh)]
        for engine in ("onnxruntime", "openvino"):
            bound = rows[0][engine].median
            told = Counter(of_claim(weigh(row[engine]), Bounds(at_least=bound))[0] for row in rows)
            print(f"# {name}, batch {batch}, {engine}: {bound:.2f} x; {dict(told)}")
            judged, flipped = judged + fresh, flipped + min(told["holds"], told["fails"])
    figures.add("flips_races", judged)
    figures.add("flips", flipped, at_most=judged // 20)


def one_race(network, path, inputs, plan):
    """Both engines against eager, all of them new sessions; a second copy of the network is the
    null arm.
    """
    first, again = (
        engines.load("eager", copy.deepcopy(network), inputs, threads=1) for _ in range(2)
    )
    arms = {"eager": first}
    arms |= {
        name: engines.load(name, path, inputs, threads=1) for name in ("onnxruntime", "openvino")
    }
    return compare(
        arms, second_session=again, inputs=[inputs], tolerance=1e-2, device="cpu", plan=plan
    )


@contextmanager
def busy_jobs():
    """As many other programs that compute as there are cores."""
    others = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(os.cpu_count())]
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()


def flagged(plan, numbers, *, shown):
    """Percentage of runs flagged noisy."""
    rows = [latency(repeated(100), plan=plan, device="cpu") for _ in numbers]
    for row in rows[:shown]:
        print(f"# {row.noise}" if row.noisy else "# quiet")
    return 100 * np.mean([row.noisy for row in rows])


def repeats(few, options):
    return range(few if options.quick else options.repeats)


def overhead(figures, options):
    """What `latency` costs beyond the calls themselves, for calls of a millisecond or more."""
    work, spent = repeated(400), [0.0]

    def call():
        begin = time.perf_counter()
        work()
        spent[0] += time.perf_counter() - begin

    plan, costs = Plan(seconds=1.5, precision=0), []
    latency(call, device="cpu", plan=Plan(seconds=0.1))
    for _ in repeats(3, options):
        spent[0], begin = 0.0, time.perf_counter()
        row = latency(call, device="cpu", plan=plan)
        costs.append((time.perf_counter() - begin) / spent[0] - 1)
    figures.add("overhead_call", row.p50_ms, at_least=1, unit="ms")
    figures.add("overhead", 100 * float(np.median(costs)), at_most=1, unit="%")


PARTS = {
    "coverage": coverage,
    "overhead": overhead,
    "noise": noise,
    "loaded": loaded,
    "same": same,
    "sessions": sessions,
    "flips": flips,
    "three_percent": three_percent,
}

if __name__ == "__main__":
    main()
