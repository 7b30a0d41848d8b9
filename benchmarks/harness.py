"""What the measuring harness can be trusted with. About 15 minutes; `--quick` under one.

Run on a machine that does nothing else: the figures of a busy machine say so in the line `load_average`.
"""

import argparse
import functools
import os
import subprocess
import sys
import time
from contextlib import contextmanager

import numpy as np
import torch
from figures import Figures
from torch.utils.benchmark import Timer

from labkit.device import using_threads
from labkit.errors import MeasureError
from labkit.measure import Plan, SimulatedMachine, compare, latency
from labkit.measure.noise import judge, read_usage
from labkit.measure.stats import bootstrap_median

TRUE_RATIO = 1.05
MACHINE = {"jitter": 0.02, "drift": 0.05, "spikes": 0.03, "slow": 0.02}
BUSY = "while True: pass"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer repeats, under a minute")
    parser.add_argument("--patient", action="store_true", help="start each measurement when other programs rest")
    parser.add_argument("--repeats", type=int, default=40, help="of each real measurement (the targets are for 40)")
    parser.add_argument("--only", help="one part: " + ", ".join(PARTS))
    options, figures = parser.parse_args(), Figures()
    counted.patient, counted.repeats = options.patient, options.repeats
    for name, part in PARTS.items():
        if options.only in (None, name):
            figures.add(f"load_average_before_{name}", os.getloadavg()[0])
            part(figures, options.quick)
    figures.exit()


def coverage(figures, quick):
    """Does the 95 % interval cover the true ratio, on a machine with drift, spikes and two clocks?"""
    count = 300 if quick else 2000
    ours = np.mean([covers(interleaved(seed)) for seed in range(count)])
    plain = np.mean([covers(one_after_the_other(seed)) for seed in range(count)])
    # A short run proves less: allow for the two standard errors of its own count.
    slack = 2 * 100 * np.sqrt(0.95 * 0.05 / count) if quick else 0
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
    """One matrix for all arms: on some CPUs the same product is a percent slower where its memory lies elsewhere."""
    return torch.linspace(-1, 1, size * size).reshape(size, size)


def repeated(times, size=64):
    """`times` small matrix products, one after the other; the answer is that of one."""
    x = square(size)

    def run():
        for _ in range(times):
            product = x @ x
        return product

    return run


def same(figures, quick):
    """A against an identical A: is it called different, and how narrow are the intervals?"""
    plan = Plan(seconds=1 if quick else 5)
    rows = [compare({"a": repeated(100), "b": repeated(100)}, tolerance=0, plan=plan)["b"] for _ in counted(5, quick)]
    different = 100 * np.mean([row.verdict != "not distinguishable" for row in rows])
    figures.add("same_called_different", different, at_most=5, unit="%")
    width = 100 * np.median([(row.high - row.low) / 2 for row in rows])
    figures.add("same_half_width", width, at_most=2, unit="%")
    figures.add("same_flagged_noisy", 100 * np.mean([row.noisy for row in rows]), unit="%")


def three_percent(figures, quick):
    """100 against 103 of the same small products: is the difference found, and by torch's own timer?"""
    found, torch_found, torch_false, seconds = [], [], [], []
    for _ in counted(3, quick):
        a, b = repeated(100), repeated(103)
        begin = time.perf_counter()
        row = compare({"a": a, "b": b}, tolerance=0, plan=Plan(seconds=2 if quick else 20))["b"]
        seconds.append(time.perf_counter() - begin)
        found.append(row.verdict == "slower")
        torch_found.append(torch_says_slower(a, b, seconds[-1]))
        torch_false.append(torch_says_slower(a, repeated(100), seconds[-1] / 4))
    figures.add("found_3_percent", 100 * np.mean(found), at_least=50 if quick else 95, unit="%")
    figures.add("found_3_percent_longest", max(seconds), at_most=30, unit="s")
    figures.add("torch_benchmark_found_3_percent", 100 * np.mean(torch_found), unit="%")
    figures.add("torch_benchmark_found_0_percent", 100 * np.mean(torch_false), unit="%")


def torch_says_slower(a, b, seconds):
    """torch.utils.benchmark on the same two, in the same time: one after the other, 95 % intervals of both medians."""
    intervals = []
    for fn in (a, b):
        times = Timer("fn()", globals={"fn": fn}).blocked_autorange(min_run_time=seconds / 2).times
        intervals.append(bootstrap_median(times))
    return intervals[1].low > intervals[0].high


def noise(figures, quick):
    """Is a machine whose cores are all busy called noisy, and a quiet one not?"""
    plan = Plan(seconds=1)
    quiet = flagged(plan, counted(6, quick), quiet=True)
    with busy_jobs():
        busy = flagged(plan, range(6 if quick else counted.repeats))
    figures.add("busy_flagged_noisy", busy, at_least=95, unit="%")
    figures.add("quiet_flagged_noisy", quiet, at_most=5, unit="%")


def loaded(figures, quick):
    """100 against 105 of the same small products, on one thread beside a busy job a core: found, and covered?"""
    plan, repeats = Plan(seconds=2 if quick else 5), range(6 if quick else counted.repeats)
    with busy_jobs(), using_threads(1):
        rows = [compare({"a": repeated(100), "b": repeated(105)}, tolerance=0, plan=plan)["b"] for _ in repeats]
    for row in rows[:3]:
        print(f"# {1 / row.high:.4f} to {1 / row.low:.4f}: {row.noise}")
    found = 100 * np.mean([row.verdict == "slower" for row in rows])
    covered = 100 * np.mean([covers((1 / row.high, 1 / row.low)) for row in rows])
    figures.add("loaded_found_5_percent", found, at_least=95, unit="%")
    figures.add("loaded_covers_5_percent", covered, at_least=80 if quick else 90, unit="%")


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


def flagged(plan, repeats, *, quiet=False):
    """Percentage of runs flagged noisy."""
    rows = [latency(repeated(100), plan=plan, device="cpu") for _ in repeats]
    for row in rows[: 40 if quiet else 1]:
        print(f"# {row.noise}" if row.noisy else "# quiet")
    return 100 * np.mean([row.noisy for row in rows])


def counted(few, quick):
    """The numbers of the repeats; each is given out when the machine is quiet, if the caller is patient."""
    for number in range(few if quick else counted.repeats):
        if counted.patient:
            wait_for_quiet()
        yield number


def wait_for_quiet(longest=30):
    """Return when other programs used less than 5 % of the cores for a second, or after `longest` seconds."""
    end, load = time.monotonic() + longest, 1.0
    while load > 0.05 and time.monotonic() < end:
        before = read_usage()
        time.sleep(1)
        load = judge(before, read_usage(), []).other_load or 0.0


def overhead(figures, quick):
    """What `latency` costs beyond the calls themselves, for calls of a millisecond or more."""
    work, spent = repeated(200), [0.0]

    def call():
        begin = time.perf_counter()
        work()
        spent[0] += time.perf_counter() - begin

    plan, costs = Plan(seconds=1.5, precision=0), []
    latency(call, device="cpu", plan=Plan(seconds=0.1))
    for _ in range(3 if quick else 10):
        spent[0], begin = 0.0, time.perf_counter()
        row = latency(call, device="cpu", plan=plan)
        costs.append((time.perf_counter() - begin) / spent[0] - 1)
    figures.add("overhead_call", row.p50_ms, at_least=1, unit="ms")
    figures.add("overhead", 100 * float(np.median(costs)), at_most=1, unit="%")


def unequal(figures, quick):
    """Ten pairs that do not do the same work: each must be refused, with what differs."""
    for name, (arms, inputs, words) in unequal_pairs().items():
        try:
            compare(arms, tolerance=1e-4, inputs=inputs, device="cpu", plan=Plan(seconds=0.1))
            text = "was not refused"
        except MeasureError as error:
            text = f"{error.what} {error.found}"
        print(f"# {name}: {text}")
        figures.add(f"refused_{name}", float(all(word in text for word in words)), at_least=1)


def unequal_pairs():
    """{name: ({name: fn}, inputs, words the refusal must have)}"""
    torch.manual_seed(0)
    layers = [torch.nn.Linear(8, 8) for _ in range(4)]
    net, half, other = (torch.nn.Sequential(*part).eval() for part in (layers, layers[:2], [torch.nn.Linear(8, 8)]))
    x = torch.randn(3, 8)
    dropout = torch.nn.Sequential(net, torch.nn.Dropout(0.5)).train()
    answer = {}

    def broken(x):
        return net(x) + torch.tensor([0.0] * 7 + [float("nan")])

    def cached(x):
        return answer.setdefault("y", net(x)) if "y" not in answer else answer["y"].clone()

    stored = net(x).detach()
    pair = {
        "batch": (net, lambda x: net(x[:1]), ["batch size 1 instead of 3"]),
        "input": (net, lambda x: net(x + 0.1), ["differs by up to"]),
        "softmax": (lambda x: net(x).softmax(-1), net, ["softmax is missing"]),
        "half_the_layers": (net, half, ["differs by up to"]),
        "transposed": (net, lambda x: net(x).T, ["transposed"]),
        "nan": (net, broken, ["3 NaN"]),
        "dtype": (net, lambda x: net(x).double(), ["float64 instead of float32"]),
        "dropout": (net, dropout, ["differently to the same input"]),
        "cached": (net, cached, ["cached"]),
        "weights": (net, other, ["differs by up to"]),
    }
    pairs = {name: ({"right": a, "wrong": b}, [x], words) for name, (a, b, words) in pair.items()}
    pairs["stored"] = ({"right": lambda: net(x), "wrong": lambda: stored}, None, ["stored result"])
    return pairs


PARTS = {
    "unequal": unequal,
    "coverage": coverage,
    "overhead": overhead,
    "noise": noise,
    "loaded": loaded,
    "same": same,
    "three_percent": three_percent,
}

if __name__ == "__main__":
    main()
