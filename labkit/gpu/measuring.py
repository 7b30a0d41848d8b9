"""Measure the arms of an item: every item that measures times uses this procedure."""

import time
from collections.abc import Callable

import torch

from labkit.gpu.arms import (
    MAX_COMPARED,
    Ready,
    baseline_label,
    described,
    difference,
    median_ms,
)
from labkit.gpu.bench import Bench, reason
from labkit.gpu.timing import NULL_ARM, interval, race, repeated, verdict


def measure(
    bench: Bench,
    groups: list[dict],
    quantity: str,
    *,
    also: Callable | None = None,
    against: Callable | None = None,
    seconds: float = 0.5,
    race_seconds: float = 8.0,
) -> None:
    """Measure groups of arms: first each arm alone, then the arms of each group in turn.

    Each result is a row in the journal. Timing in turn also gives ratios of arms. Compiled arms are
    measured after the others, because compiling takes long. The arms in `bench.last` are measured
    last of all. If an arm raises an error, its row has the reason, and the other arms are still
    measured.

    The first arm of a group is timed a second time when the arms take turns. The ratio of its two
    timings gives the noise floor: how far from 1 a ratio is between equals.

    groups        [{`Arm`: make}]. `make` is a function () that returns the arm's function (), or
                  (this function, how often one call of it does the work)
    quantity      name of what is measured, such as "step"
    also          function (bench, arm, `Timing` in ms, further fields) that writes further rows of
                  an arm; None: no further rows
    against       function (arm) -> the baseline of the arm, an `Arm`; None: the baseline is the
                  first arm of the group
    seconds       seconds for which an arm is timed alone
    race_seconds  largest number of seconds for which a group is timed in turn; it is smaller if the
                  item's deadline is near
    """
    # Each arm alone.
    arms = {arm: make for group in groups for arm, make in group.items()}
    bench.plan(arms)
    ready = {}
    for arm in sorted(arms, key=lambda arm: (described(arm) in bench.last, arm.compiled)):
        bench.begin(arm)
        try:
            ready[arm] = make_ready(bench, arms[arm])
            times = repeated(
                bench.stopwatch,
                ready[arm].run,
                seconds=bench.size(seconds, 0.02),
                calls=ready[arm].calls,
            )
            write_times(bench, arm, quantity, ready[arm], times, also=also, in_turn=False)
        # any error, such as a full memory or a missing compiler, is the reason in the row
        except Exception as error:
            ready.pop(arm, None)
            bench.failed(arm, quantity, error)

    # Then the arms of a group in turn; the groups share the time that is left.
    for number, group in enumerate(groups):
        remaining = (bench.end - time.monotonic()) / (len(groups) - number)
        run_race(
            bench,
            {arm: ready[arm] for arm in group if arm in ready},
            quantity,
            also=also,
            against=against,
            seconds=min(remaining, bench.size(race_seconds, 0.05)),
        )


def make_ready(bench: Bench, make: Callable) -> Ready:
    """Make the function of an arm and call it until it is warm. Returns the `Ready` arm.

    Its `peak_bytes` includes the memory that making the function takes.

    make  as in `measure`
    """
    bench.clean()
    earlier_bytes = bench.allocated_bytes()
    run = make()
    inner = 1
    if isinstance(run, tuple):
        run, inner = run
    output = run()  # here it is compiled
    if isinstance(output, torch.Tensor):
        output = output.detach().flatten()[:MAX_COMPARED].float().cpu()
    else:
        output = None

    # Warm up; from the time of a call follows how many calls make a sample of about a millisecond.
    warm = repeated(bench.stopwatch, run, seconds=bench.size(0.2, 0.0))
    calls = max(1, min(64, round(bench.size(1.0, 0.1) / max(min(warm), 1e-3))))

    peak = bench.peak_bytes(run, above=earlier_bytes)
    return Ready(run, inner, calls, output, peak, getattr(run, "facts", {}))


def run_race(bench, ready, quantity, *, also, against, seconds):
    """Time the arms of a group in turn, and write the rows of their times and ratios.

    These rows of times replace the rows of the arms that were timed alone.

    ready                    {`Arm`: its `Ready`}
    quantity, also, against  as in `measure`
    seconds                  largest number of seconds; with 0 or less, nothing is timed
    """
    if len(ready) < 2 or seconds <= 0:
        return
    functions = {arm: (prepared_arm.run, prepared_arm.calls) for arm, prepared_arm in ready.items()}
    times, failed = race(bench.stopwatch, functions, end=time.monotonic() + seconds)
    for arm, error in failed.items():
        print(f"{arm}: out of the race, {reason(error)}", flush=True)
    if not all(map(len, times.values())) or NULL_ARM not in times:
        return

    # How far the first arm differs from itself is the noise floor of the ratios.
    first = next(iter(ready))
    floor = None
    if first in times:
        null = interval(times[first] / times[NULL_ARM])
        if null.low is not None:
            floor = max(abs(null.low - 1), abs(null.high - 1))
    for arm in [arm for arm in ready if arm in times]:
        write_times(bench, arm, quantity, ready[arm], times[arm], also=also, in_turn=True)
        baseline = against(arm) if against else first
        if baseline != arm and baseline in times and floor is not None:
            write_ratio(
                bench, arm, baseline, quantity=quantity, ready=ready, times=times, floor=floor
            )


def write_times(bench, arm, quantity, prepared_arm, times, *, also, in_turn):
    """Write the row of an arm's times to the journal, and the further rows of `also`.

    prepared_arm  the `Ready` arm
    times         milliseconds per call, one for each sample
    also          as in `measure`
    in_turn       True if the arms of the group were timed in turn
    """
    timing = interval([ms / prepared_arm.inner for ms in times])
    peak_bytes = prepared_arm.peak_bytes
    fields = {
        "low": timing.low,
        "high": timing.high,
        "samples": timing.samples,
        "peak_bytes": peak_bytes,
    }
    fields |= prepared_arm.facts  # an engine sets the peak to None: its memory is not torch's
    bench.row(arm, quantity, timing.median, "ms", **fields, in_turn=in_turn)
    if also:
        also(bench, arm, timing, {"peak_bytes": peak_bytes, "in_turn": in_turn})


def write_ratio(bench, arm, baseline, *, quantity, ready, times, floor):
    """Write the row of an arm's speed-up to the journal.

    In each round the time of the baseline is divided by the time of the arm. The row has the median
    of these ratios.

    baseline  the `Arm` with which the arm is compared
    ready     {`Arm`: its `Ready`}
    times     {`Arm`: milliseconds per call, one for each round}
    floor     noise floor: how far from 1 a ratio is between equals
    """
    scale = ready[arm].inner / ready[baseline].inner
    ratios = scale * times[baseline] / times[arm]
    ratio = interval(ratios)
    bench.row(
        arm,
        f"{quantity}, ratio",
        ratio.median,
        "x",
        low=ratio.low,
        high=ratio.high,
        samples=ratio.samples,
        baseline=baseline_label(baseline, arm),
        floor=floor,
        verdict=verdict(ratio.low, ratio.high, floor, ratio.samples),
        baseline_ms=median_ms(ready[baseline], times[baseline]),
        arm_ms=median_ms(ready[arm], times[arm]),
        tolerance=difference(ready[baseline].output, ready[arm].output),
    )
