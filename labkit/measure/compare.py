"""Which of several functions is faster, and is the difference real on this machine today?"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from labkit.ledger.rows import Deployment, Ratio
from labkit.measure.clock import Plan, as_calls, clock_of, provenance
from labkit.measure.equality import check_same_work
from labkit.measure.latency import warm_up
from labkit.measure.noise import noise_of
from labkit.measure.stats import FEWEST, bootstrap_median

if TYPE_CHECKING:
    import torch

SHORTEST_S = 100e-6  # faster calls are timed in groups of this length
FEWEST_ROUNDS = 31
SAME = "not distinguishable"
TOO_FEW = "too few pairs"
NULL = "the same again"  # the null arm: the baseline under another name
AGAIN = "a second session"  # the null arm: the baseline built a second time


def compare(
    arms: dict[str, Callable],
    *,
    tolerance: float,
    inputs: Sequence | None = None,
    batch: int | None = None,
    device: "torch.device | None" = None,
    plan: Plan | None = None,
) -> "Comparison":
    """Time functions against the first of them: a `Comparison` of ratios (above 1 is faster than the first).

    arms       {name: fn}; called without arguments, or fn(*input) over rotating `inputs`. What is built, such as a
               session of an engine, is given as a pair in the first arm: (fn, the same built a second time)
    tolerance  largest difference of the outputs, relative to the largest value of the first arm's output
    batch      leading dimension every output must have; None: that of the first
    device     a device, or a `Clock` to measure with
    plan       `Plan(seconds=..., precision=...)`; precision is the half-width of every ratio's interval. The fewest
               rounds that allow a verdict (11) may take up to twice the seconds, those of an interval (6) any time

    First every arm must give the same answers (`equality`): it is called 2 times where there are no inputs, 4 times
    with one or two inputs, 6 times with more. The inputs are not written to; with one input, two of the calls get a
    reversed copy of it. An output that two calls return in the same memory is overwritten, and put back after one call
    more: so a stored answer shows. Then every arm is warmed up. None of these calls counts.

    Then rounds are timed: in each, every arm once in random order, and the first arm a second time (the null arm). One
    round gives one ratio per arm, both under nearly the same conditions; their median is the result, with its
    interval. The first arm against itself shows what this machine cannot tell apart: a ratio counts as different
    only when its whole interval lies outside that floor. Two sessions of one file differ by chance (where their memory
    lies), and one that is called twice a round finds its weights in the cache more often. So where engines race, the
    null arm is the second of a pair: the floor covers another session, and each session is called once a round.

    Waiting for a core is added to both arms and moves their ratio towards 1. Where nothing but waiting slowed the arms
    down and this thread alone computed, the times are those of the thread's own clock; the row's `noise` says so, or
    that the true difference may be larger.
    """
    clock = clock_of(device)
    plan = plan or Plan()
    calls = as_calls(inputs)
    arms = _with_null_arm(arms)
    checked = {name: fn for name, fn in arms.items() if name != NULL}
    check_same_work(checked, calls, tolerance=tolerance, batch=batch, run=lambda fn, args: clock.time(fn, args)[1])
    times, noisy, why = _timed(clock, list(arms.values()), calls, plan)
    fields = {"batch": batch, "tolerance": float(tolerance), "noisy": noisy, "noise": why}
    return _comparison(list(arms), times, {**provenance(clock), **fields})


def _with_null_arm(arms):
    """The arms, every one a function, and the null arm as the last one."""
    first, *_ = arms
    if isinstance(arms[first], tuple):
        built, again = arms[first]
        return {**arms, first: built, AGAIN: again}
    return {**arms, NULL: arms[first]}


def _timed(clock, functions, calls, plan):
    """((rounds, arms) seconds a call, whether the machine was noisy, why or None)."""
    group = _group_size(clock, functions, calls, plan)
    before = clock.usage()
    times, computed = _time_rounds(clock, functions, calls, plan=plan, group=group)
    noise = noise_of(before, clock.usage(), times[:, 0])
    why = noise.why
    if noise.diluted and noise.alone and clock.computed:
        times, why = computed, f"{why}; so the times are those of the thread's own clock, without the waiting"
    elif noise.diluted and clock.event is None:
        why = f"{why}; waiting dilutes the ratios: the true difference may be larger"
    return times, noise.noisy, why


def _group_size(clock, functions, calls, plan):
    """Warm every arm up; how many calls make a sample long enough for the clock."""
    share = Plan(seconds=plan.seconds / len(functions))
    fastest = min(float(np.median(warm_up(clock, fn, calls, share)[0])) for fn in functions)
    return max(1, math.ceil(SHORTEST_S / max(fastest, 1e-9)))


def _time_rounds(clock, functions, calls, *, plan, group):
    """(2, rounds, arms) seconds a call, in rounds of random order, until precise enough or out of time.

    First by the clock, then by the thread's own, which stands still while the thread waits (0 where there is none).
    """
    random = np.random.default_rng(plan.seed)
    computed = clock.computed or (lambda: 0.0)

    def once(place):
        row = [None] * len(functions)
        for index in random.permutation(len(functions)):
            start = computed()
            taken, _ = clock.time(functions[index], calls[place % len(calls)], calls=group)
            row[index] = taken, (computed() - start) / group
        return row

    rounds = plan.repeat(once, clock, width_of=_widest, first_check=FEWEST_ROUNDS, fewest=FEWEST)
    return np.moveaxis(np.array(rounds), -1, 0)


def _widest(rounds):
    """Half the widest interval of the ratios."""
    times = np.array(rounds)[:, :, 0]
    intervals = [bootstrap_median(column) for column in (times[:, :1] / times[:, 1:]).T]
    return max((high - low) / 2 for low, high in intervals)


def _comparison(names, times, shared):
    """The `Comparison` of rounds: one column per name, the last one of the null arm.

    shared  the fields that all rows have in common
    """
    low, high = bootstrap_median(times[:, 0] / times[:, -1])
    shared = {**shared, "baseline": names[0], "floor": max(abs(low - 1), abs(high - 1))}
    *rows, null = (_ratio_row(arm, times[:, 0], times[:, column], shared) for column, arm in enumerate(names) if column)
    return Comparison({row.arm: row for row in rows}, null)


def _ratio_row(arm, baseline_s, arm_s, shared):
    """The row of one arm from its times and the baseline's, both (rounds,); `shared`: the fields all arms share."""
    ratios = baseline_s / arm_s
    found = bootstrap_median(ratios)
    return Ratio(
        **shared,
        arm=arm,
        median=found.median,
        low=found.low,
        high=found.high,
        verdict=verdict(*found, shared["floor"]) if found.enough else TOO_FEW,
        pairs=len(ratios),
        baseline_ms=1e3 * float(np.median(baseline_s)),
        arm_ms=1e3 * float(np.median(arm_s)),
        ratios=tuple(ratios.round(6).tolist()),
    )


def verdict(low: float, high: float, floor: float) -> str:
    """Different only when the whole interval is further from 1 than two identical arms were."""
    if low > 1 + floor:
        return "faster"
    return "slower" if high < 1 / (1 + floor) else SAME


@dataclass(frozen=True)
class Comparison:
    """Ratios of all arms to the first, and of the first to itself. `result["name"]` is one `rows.Ratio`."""

    ratios: dict
    null: Ratio

    def __getitem__(self, arm):
        return self.ratios[arm]

    @property
    def rows(self):
        """Everything for the ledger, the null arm included."""
        return (*self.ratios.values(), self.null)

    @property
    def frame(self):
        """A DataFrame, one line an arm."""
        import pandas as pd

        names = ("arm", "median", "low", "high", "verdict", "floor", "pairs", "arm_ms", "noisy")
        return pd.DataFrame([vars(row) for row in self.rows], columns=names)

    def deployments(self, accuracies, *, sizes=(), **about):
        """Arms as `rows.Deployment`, which the report draws: accuracy against latency.

        accuracies  {arm: fraction of the test images, 0 to 1}; the other arms are left out
        sizes       {arm: bytes on disk}
        about       dataset, engine, precision, threads, batch
        """
        ms = {self.null.baseline: self.null.baseline_ms} | {arm: row.arm_ms for arm, row in self.ratios.items()}
        about, size = {"device": self.null.device, **about}, dict(sizes).get
        return [
            Deployment(model=arm, accuracy=float(right), latency_p50_ms=ms[arm], size_bytes=size(arm), **about)
            for arm, right in accuracies.items()
            if arm in ms
        ]

    def plot(self):
        from labkit.plots import ratio

        return ratio(self)

    def summary(self):
        return "\n".join(row.summary() for row in self.rows)

    def _repr_html_(self):
        return self.frame.to_html(index=False, float_format="{:.4g}".format)
