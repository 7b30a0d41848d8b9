"""Compare the speed of several functions, and judge whether a difference is more than noise."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from labkit.errors import require_known
from labkit.ledger.rows import Deployment, Ratio
from labkit.measure.clock import Plan, as_calls, clock_of, provenance
from labkit.measure.equality import check_same_work
from labkit.measure.rounds import TURNS
from labkit.measure.stats import median_of_rounds
from labkit.measure.turns import NULL_ARM, TOO_FEW, floor_of, interval_of_ratios, time_arms, verdict

if TYPE_CHECKING:
    import torch

SECOND_SESSION = "a second session"  # the baseline, built a second time


def compare(
    arms: dict[str, Callable],
    *,
    tolerance: float,
    inputs: Sequence | None = None,
    second_session: Callable | None = None,
    batch: int | None = None,
    device: "torch.device | None" = None,
    plan: Plan | None = None,
    turns: str = "series",
) -> "Comparison":
    """Time several functions, and compare each with the first one. Returns a `Comparison`.

    The functions are called arms, as in a clinical trial. The ratio of an arm is the time of the
    first arm divided by the time of this arm: above 1, the arm is faster than the first.

    arms       {name: function}, called without arguments, or as fn(*input) over rotating `inputs`
    tolerance  largest difference of the outputs, relative to the largest value of the first arm's
               output
    inputs     list of inputs, each a tensor or a tuple of arguments, used in turn; None: no
               arguments
    second_session  only for arms that are sessions of an inference engine: the first session, built
                    a second time from the same file. It serves as the null arm (step 3)
    batch      leading dimension that every output must have; None: any
    device     a device, or a `Clock` to measure with
    plan       `Plan(seconds=..., precision=...)`. Timing stops early when half the width of each
               ratio's interval, divided by the ratio, is at most `precision`. To time the 11 rounds
               that a verdict needs, up to twice the budget is spent; 6 rounds are timed in any case
    turns      "series": how fast is an arm that runs alone? "calls": how fast is it where calls of
               all arms alternate?
    Raises     MeasureError: the arms do not do the same work

    1. Check: every arm must give the same answers (`equality`). An arm is called twice without
       inputs, four times with one or two inputs, six times with more. A single input is also given
       as a copy in reverse order. Inputs are never written to. If two calls return the same memory,
       that output is overwritten, the arm is called once more, and the output is restored: this
       finds an arm that only returns a stored answer.
    2. Warm up every arm. None of these calls counts.
    3. Time rounds. In each round every arm is timed once, in random order. The first arm is timed a
       second time in each round, as the null arm. A round gives one ratio for each arm, from two
       times that were taken under nearly the same conditions. The result is the median of these
       ratios with its interval.
    4. Judge. The null arm shows which differences this machine measures between equal arms. They
       form a band around 1, the noise floor. A ratio counts as different from 1 only if its whole
       interval lies outside the band.

    By default an arm is called in a series when its turn comes: at least 8 times and for 20 ms. The
    first calls of a series do not count, because the arm before has pushed this arm's data out of
    the cache. They give a second ratio, `beside` of the row: an estimate of the ratio where calls
    of all arms alternate. A small budget makes the series shorter. If it does not hold two calls of
    each arm, single calls are timed, and `turns` of the row is then "calls".

    Give `second_session` where engines are compared, for two reasons. Two sessions of one file may
    differ in speed, depending on where their weights lie in memory. And without it the first
    session is called twice in a round, so it finds its weights in the cache more often than the
    other sessions.

    Waiting for a core adds to both times of a ratio, so the ratio comes out closer to 1 than it is.
    The clock of the measuring thread stands still while the thread waits. Its times are used if the
    thread never slept and no other thread of this process computed; `noise` of the row then says
    so. Otherwise `noise` says that the true difference may be larger.
    """
    require_known(turns, TURNS, "order of turns")
    clock = clock_of(device)
    plan = plan or Plan()
    calls = as_calls(inputs)
    baseline = next(iter(arms))

    # 1. Every arm must do the same work. The baseline under a second name need not be checked.
    if second_session is None:
        checked_arms = arms
        all_arms = {**arms, NULL_ARM: arms[baseline]}
    else:
        checked_arms = {**arms, SECOND_SESSION: second_session}
        all_arms = checked_arms
    check_same_work(
        checked_arms,
        calls,
        tolerance=tolerance,
        batch=batch,
        run=lambda fn, arguments: clock.time(fn, arguments)[1],
    )

    # 2. and 3. Warm up and time; the last column of the times is the null arm's.
    names = list(all_arms)
    timed = time_arms(clock, list(all_arms.values()), calls, plan, turns)
    times = timed.times
    first = timed.first

    # 4. The floor is the end of the null arm's interval that is further from 1.
    shared_fields = {
        **provenance(clock),
        "baseline": baseline,
        "turns": timed.turns,
        "floor": floor_of(times[:, 0] / times[:, -1]),
        "batch": batch,
        "tolerance": float(tolerance),
        "noisy": timed.noisy,
        "noise": timed.why,
    }
    beside_floor = floor_of(first[:, 0] / first[:, -1])
    # If the null arm is the same function as the first arm, a first call of one directly after the
    # other is not timed. Where too few first calls are left, the floor of the series stands in.
    if not math.isfinite(beside_floor):
        beside_floor = shared_fields["floor"]
    rows = {}
    for column in range(1, len(names)):
        first_call_fields = _beside_fields(first[:, 0], first[:, column], beside_floor)
        fields = {**shared_fields, **first_call_fields}
        rows[names[column]] = _ratio_row(names[column], times[:, 0], times[:, column], fields)
    null_row = rows.pop(names[-1])
    return Comparison(rows, null_row)


def _beside_fields(baseline_s, arm_s, floor):
    """Return the ratio of the first calls of all series as fields of a `rows.Ratio`.

    The fields are "beside", "beside_low", "beside_high" and "beside_floor". If there are too few
    first calls for an interval, the dictionary is empty.

    baseline_s, arm_s  (rounds,) seconds of the first calls of the first arm and of this arm
    floor              noise floor of the first calls, as `floor_of` returns it
    """
    interval = interval_of_ratios(baseline_s / arm_s)
    if not math.isfinite(interval.high - interval.low):
        return {}
    return {
        "beside": interval.median,
        "beside_low": interval.low,
        "beside_high": interval.high,
        "beside_floor": floor,
    }


def _ratio_row(name, baseline_s, arm_s, fields):
    """Return the `rows.Ratio` of one arm.

    name               name of the arm
    baseline_s, arm_s  (rounds,) seconds per call of the first arm and of this arm
    fields             {field: value} of the row that do not follow from these times, "floor" among
                       them
    """
    ratios = baseline_s / arm_s
    interval = median_of_rounds(ratios)
    arm_verdict = TOO_FEW
    if interval.enough:
        arm_verdict = verdict(interval.low, interval.high, fields["floor"])
    return Ratio(
        **fields,
        arm=name,
        median=interval.median,
        low=interval.low,
        high=interval.high,
        verdict=arm_verdict,
        pairs=len(ratios),
        baseline_ms=1e3 * float(np.median(baseline_s)),
        arm_ms=1e3 * float(np.median(arm_s)),
        ratios=tuple(ratios.round(6).tolist()),
    )


@dataclass(frozen=True)
class Comparison:
    """The result of `compare`: how many times as fast each arm is as the first arm.

    `comparison["name"]` is the `rows.Ratio` of an arm.

    ratios  {name of an arm: `rows.Ratio`}, without the first arm and the null arm
    null    the `rows.Ratio` of the null arm, which is the first arm timed a second time
    """

    ratios: dict
    null: Ratio

    def __getitem__(self, arm):
        return self.ratios[arm]

    @property
    def rows(self):
        """All `rows.Ratio` of the comparison as a tuple; the null arm's row is the last."""
        return (*self.ratios.values(), self.null)

    @property
    def frame(self):
        """Return the comparison as a DataFrame with one row for each arm but the first.

        If for some arm the ratio of alternating calls differs from the ratio of the series by more
        than the noise, the column "beside" shows the ratio of alternating calls.
        """
        import pandas as pd

        columns = ["arm", "median", "low", "high", "verdict", "floor", "pairs", "arm_ms", "noisy"]
        if any(row.beside_differs for row in self.rows):
            columns.insert(4, "beside")
        return pd.DataFrame([vars(row) for row in self.rows], columns=columns)

    def deployments(self, accuracies, *, sizes=(), **fields):
        """Return the arms as `rows.Deployment`, which the report draws as accuracy against latency.

        accuracies  {arm: share of the test images, 0 to 1}; arms without an accuracy are left out
        sizes       {arm: bytes on disk}
        fields      further fields of the rows: dataset, engine, precision, threads, batch
        """
        fields = {"device": self.null.device, **fields}
        sizes = dict(sizes)
        latencies_ms = {self.null.baseline: self.null.baseline_ms}
        for arm, row in self.ratios.items():
            latencies_ms[arm] = row.arm_ms

        deployments = []
        for arm, accuracy in accuracies.items():
            if arm in latencies_ms:
                row = Deployment(
                    model=arm,
                    accuracy=float(accuracy),
                    latency_p50_ms=latencies_ms[arm],
                    size_bytes=sizes.get(arm),
                    **fields,
                )
                deployments.append(row)
        return deployments

    def plot(self):
        from labkit.plots import ratio

        return ratio(self)

    def summary(self):
        return "\n".join(row.summary() for row in self.rows)

    def _repr_html_(self):
        return self.frame.to_html(index=False, float_format="{:.4g}".format)
