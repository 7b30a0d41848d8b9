"""Exercises of lesson 02: repair a stopwatch, decide whether a change is real, count the calls of a percentile."""

from numbers import Real

import numpy as np

from labkit.lesson.exercises import Exercise, Wrong, expect, shorten, untouched
from labkit.measure.stats import quantile_floor

TRUTH_S = 2e-3
SEEDS = 60  # runs of each made-up machine: a single call is interrupted in one of twelve
SURE = 0.9  # of the decisions that must be right, over many made-up runs


class Machine:
    """A made-up machine: cold at first, sometimes interrupted, and its device works through a queue."""

    def __init__(self, *, queue=False, cold_calls=0, spikes=0.0, hurries=0.0, seed=0):
        self.random = np.random.default_rng(seed)
        self.queue, self.cold_calls, self.spikes, self.hurries = queue, cold_calls, spikes, hurries
        self.time, self.idle_at, self.calls = 0.0, 0.0, 0

    def now(self):
        return self.time

    def synchronize(self):
        self.time = max(self.time, self.idle_at)

    def work(self):
        self.calls += 1
        cost = TRUTH_S * (1 + 0.01 * self.random.standard_normal())
        if self.cold_calls > 0:
            self.cold_calls, cost = self.cold_calls - 1, cost * 20
        luck = self.random.random()
        if luck < self.spikes:
            cost *= 10
        elif luck > 1 - self.hurries:
            cost *= 0.8
        if self.queue:
            self.time += 1e-5
            self.idle_at = max(self.time, self.idle_at) + cost
        else:
            self.time += cost


def time_one_call(work, now, synchronize):
    from statistics import median

    for _ in range(10):
        work()
    synchronize()
    seconds = []
    for _ in range(50):
        begin = now()
        work()
        synchronize()
        seconds.append(now() - begin)
    return median(seconds)


def verify_time_one_call(answer):
    machines = {
        "a quiet machine": {},
        "a device that works through a queue": {"queue": True},
        "a machine whose first five calls are cold": {"cold_calls": 5},
        "a machine that is interrupted now and then": {"spikes": 0.08},
        "a machine that now and then is quicker than usual": {"hurries": 0.15},
        "a queue, cold at first, with interruptions": {"queue": True, "cold_calls": 5, "spikes": 0.08},
    }
    for name, traits in machines.items():
        for seed in range(SEEDS):  # one run could miss the spikes by luck
            machine = Machine(**traits, seed=seed)
            found = answer(machine.work, machine.now, machine.synchronize)
            if not isinstance(found, (int, float)):
                raise Wrong(f"On {name}: expected seconds as a number, such as float(...), found {shorten(found)}.")
            near = abs(found - TRUTH_S) <= 0.03 * TRUTH_S
            where = f"On {name} (run {seed + 1} of {SEEDS})"
            expect(
                near,
                f"{where} a call takes {TRUTH_S * 1e3:.2f} ms; your function says {found * 1e3:.2f} ms "
                f"after {machine.calls} calls.",
            )


def is_real(ratios, null_ratios):
    import numpy as np

    def interval(values):
        ordered, n = np.sort(values), len(values)
        rank = max(1, round(n / 2 - n**0.5))
        return ordered[rank - 1], ordered[-rank]

    low, high = interval(ratios)
    floor = max(abs(end - 1) for end in interval(null_ratios))
    if low > 1 + floor:
        return "faster"
    if high < 1 / (1 + floor):
        return "slower"
    return "not distinguishable"


def runs(true_ratio, *, null=1.0, noise=0.02, null_noise=None, spikes=0.05, pairs=60, null_pairs=None, seed=0):
    """(ratios, null ratios) of one made-up comparison with spikes in both."""
    random = np.random.default_rng(seed)

    def series(center, noise, pairs):
        values = center * np.exp(noise * random.standard_normal(pairs))
        hit = random.random(pairs) < spikes
        return np.where(hit, values * random.choice([0.2, 5.0], pairs), values)

    return series(true_ratio, noise, pairs), series(null, null_noise or noise, null_pairs or pairs)


def verify_is_real(answer):
    answer = untouched(answer)
    words = ("faster", "slower", "not distinguishable")
    cases = {
        "a change that is 10 % faster": (1.10, "faster", {}),
        "a change that is 10 % slower": (0.90, "slower", {}),
        "no change at all": (1.00, "not distinguishable", {}),
        "no change, on a noisy machine with few pairs": (1.00, "not distinguishable", {"noise": 0.2, "pairs": 15}),
        "4 % faster, where the same code against itself is 9 % faster": (1.04, words[2], {"null": 1.09}),
        "4 % faster, where the same code against itself is 9 % slower": (1.04, words[2], {"null": 0.91}),
        "4 % slower, where the same code against itself is 9 % slower": (0.96, words[2], {"null": 0.91}),
        "22 % slower, where the band goes down to 1 / 1.25": (0.78, "slower", {"null": 1.25, "noise": 0.002}),
        "18 % slower, where the band goes down to 1 / 1.25": (0.82, words[2], {"null": 1.25, "noise": 0.002}),
        "a noisy comparison beside a quiet null run": (1.02, words[2], {"noise": 0.3, "null_noise": 0.03, "pairs": 20}),
        "a quiet comparison beside a noisy null run": (
            1.05,
            words[2],
            {"noise": 0.002, "null_noise": 0.3, "pairs": 15},
        ),
        "10 % faster, where the lower end of its interval lies within the band of 8 %": (
            1.10,
            words[2],
            {"null": 1.08, "noise": 0.15, "null_noise": 0.002, "pairs": 40},
        ),
        "10 % faster, a noise of 15 % in each pair, and 400 pairs": (1.10, "faster", {"noise": 0.15, "pairs": 400}),
        "10 % faster in 20 pairs, beside 100 pairs of the same code": (
            1.10,
            "faster",
            {"noise": 0.01, "null_noise": 0.08, "pairs": 20, "null_pairs": 100},
        ),
        "1 % faster, far below what this noise can show": (1.01, "not distinguishable", {"noise": 0.15, "pairs": 15}),
    }
    for name, (true_ratio, wanted, traits) in cases.items():
        told = [answer(*runs(true_ratio, seed=seed, **traits)) for seed in range(40)]
        odd = next((word for word in told if str(word) not in words), words)
        expect(odd is words, f'Expected "faster", "slower" or "not distinguishable"; found {shorten(odd)}.')
        share = np.mean([str(word) == wanted for word in told])
        most = max(set(told), key=told.count)
        expect(
            share >= SURE,
            f"{name}: nearly all of 40 runs should end in {wanted!r}; yours say it in {share:.0%}"
            + (f", and {most!r} most often." if most != wanted else "."),
        )


def calls_needed(q, sure=0.99):
    n = 2
    while q**n + n * (1 - q) * q ** (n - 1) > 1 - sure:
        n += 1
    return n


def verify_calls_needed(answer):
    cases = [
        (0.95, None),
        (0.99, None),
        (0.5, None),
        (0.937, 0.99),
        (0.8, 0.95),
        (0.99, 0.9),
        (0.731, 0.999),
        (0.999, None),
        (0.31, 0.6),
        (0.937, 0.45),  # fewer calls than two lie above on average
        (0.9995, None),  # more than 10,000 calls
    ]
    for q, sure in cases:
        found = answer(q) if sure is None else answer(q, sure)
        wanted = quantile_floor(q, sure or 0.99)
        said = f"q = {q} and sure = {sure or 0.99}"
        is_count = isinstance(found, Real) and float(found).is_integer()
        expect(is_count, f"With {said}: expected {wanted}, a count of calls, found {shorten(found)}.")
        expect(found == wanted, f"With {said} it takes {wanted} calls; your function says {shorten(found)}.")


EXERCISES = (
    Exercise(
        id="time-one-call",
        task="Repair a stopwatch that forgets to wait, starts cold and believes the mean.",
        difficulty=2,
        minutes=8,
        hint="Warm up; wait until the queue is empty; time each call from idle to idle; take the median of many.",
        reference=time_one_call,
        verify=verify_time_one_call,
    ),
    Exercise(
        id="is-real",
        task="Decide from two runs, one of them the same code against itself, whether a change is real.",
        difficulty=3,
        minutes=10,
        hint=(
            "How far from 1 does the interval of the null run reach? "
            "A change is real when its whole interval lies further out."
        ),
        reference=is_real,
        verify=verify_is_real,
    ),
    Exercise(
        id="calls-needed",
        task="Count the calls from which a percentile may be reported.",
        difficulty=2,
        minutes=6,
        hint=(
            "None of n calls lies above q with chance q**n, exactly one with chance n * (1 - q) * q ** (n - 1). "
            "Together they must be at most 1 - sure: raise n until they are."
        ),
        reference=calls_needed,
        verify=verify_calls_needed,
    ),
)
