"""Time calls in rounds: in each round every arm is timed once, in random order.

An arm is one of the functions that are compared. A call finds the cache as the call before left it.
In a *series*, an arm is called many times in succession. Its first calls find the weights of
another arm in the cache and do not count, so a series gives the time of an arm that runs alone.
Where single *calls* alternate, every call has to fetch its weights into the cache anew. Fetching
adds about as many milliseconds to the time of a fast arm as to that of a slow one, so the ratio of
their times moves towards 1. A null arm (the first arm once more) does not reveal this: it has to
fetch its weights as well, so its ratio stays at 1.
"""

from dataclasses import dataclass

import numpy as np

from labkit.measure.clock import Plan, group_size, sample_until_precise, warm_up
from labkit.measure.stats import MIN_SAMPLES_TO_DECIDE, median_of_rounds

TURNS = ("series", "calls")
MIN_SAMPLE_S = 100e-6  # shorter calls are timed in groups of this length
MIN_FIRST_CALL_S = 20e-6  # a single call that is shorter cannot be timed
SERIES_S = 20e-3  # least length of the timed part of a series
SERIES_SAMPLES = 8  # least number of timed samples in a series
COLD_S = 5e-3  # least time not counted before: enough to fetch 50 MB of weights at 10 GB/s
COLD_SAMPLES = 2  # least number of samples not counted
# rounds before the intervals are first computed
FIRST_CHECK = {"series": MIN_SAMPLES_TO_DECIDE, "calls": 31}


@dataclass(frozen=True)
class Series:
    """The number of calls of an arm in one round.

    An arm is timed in samples of one or several calls each.

    cold   number of samples before the timed ones, which are not counted: the cache is cold. 0:
           single calls are timed, and there is no series
    timed  number of samples that are counted; their median is the time of the series
    calls  number of calls in each sample
    """

    cold: int
    timed: int
    calls: int


@dataclass(frozen=True)
class RoundTimes:
    """Seconds per call of all arms: four arrays of shape (rounds, arms).

    wall          times by the clock
    thread        times by the clock of this thread, which stands still while the thread waits; 0
                  without such a clock
    wall_first    times of the first call of each series, by the clock. This call found another
                  arm's weights in the cache. NaN if the call before was of the same function, if
                  the call is too short to be timed alone, or if single calls were timed
    thread_first  times of the first call of each series, by the clock of this thread
    """

    wall: np.ndarray
    thread: np.ndarray
    wall_first: np.ndarray
    thread_first: np.ndarray


def warm_up_arms(clock, functions, calls, plan):
    """Call every arm until its time is stable. Returns a list (arms,) of seconds per call.

    functions  one for each arm
    calls      list of argument tuples, used in rotation
    plan       the `Plan`; its budget is divided equally among the arms
    """
    warm_up_plan = Plan(seconds=plan.seconds / len(functions))
    seconds = []
    for fn in functions:
        warmup_s, _ = warm_up(clock, fn, calls, warm_up_plan)
        # A single call that took the whole budget may have been busy compiling: its time would
        # leave no room for series.
        if len(warmup_s) == 1:
            warmup_s, _ = warm_up(clock, fn, calls, warm_up_plan)
        seconds.append(float(np.median(warmup_s)))
    return seconds


def plan_series(call_s, plan, turns):
    """Choose how many calls of each arm are timed in a round. Returns a list of `Series`.

    The list has one `Series` for each arm.

    call_s  (arms,) seconds per call
    plan    the `Plan` with the time budget
    turns   "series" or "calls"

    The 11 rounds that a verdict needs have to fit into the time budget. Where calls are slow, the
    series become shorter. If not even twice the budget holds two calls of each arm in every round,
    single calls are timed.
    """
    calls = group_size(min(call_s), MIN_SAMPLE_S)
    single_calls = [Series(cold=0, timed=1, calls=calls) for _ in call_s]
    if turns == "calls":
        return single_calls

    # The full length, and the share of it that the budget allows.
    full_series = []
    for seconds in call_s:
        sample_s = max(calls * seconds, 1e-9)  # a clock with coarse ticks may have measured 0
        timed = max(SERIES_SAMPLES, int(np.ceil(SERIES_S / sample_s)))
        cold = max(COLD_SAMPLES, int(np.ceil(COLD_S / sample_s)))
        full_series.append(Series(cold, timed, calls))
    affordable_s = plan.seconds / MIN_SAMPLES_TO_DECIDE
    share = min(1.0, affordable_s / max(_round_seconds(full_series, call_s), 1e-9))
    series = []
    for full in full_series:
        cold = max(1, int(share * full.cold))
        timed = max(1, int(share * full.timed))
        series.append(Series(cold, timed, calls))
    if _round_seconds(series, call_s) > 2 * affordable_s:
        return single_calls
    return series


def turns_of(series):
    """Return "series" if the arms are called in series, or "calls" if single calls are timed.

    series  list of `Series`, as `plan_series` returned it
    """
    if series[0].cold:
        return "series"
    return "calls"


def _round_seconds(series, call_s):
    """Return the seconds of one round in which each arm is called as often as its `Series` says.

    call_s  (arms,) seconds per call
    """
    total = 0.0
    for arm, seconds in zip(series, call_s, strict=True):
        total += (arm.cold + arm.timed) * arm.calls * seconds
    return total


def time_rounds(clock, functions, calls, *, plan, series):
    """Time rounds of all arms until the ratios are precise enough. Returns `RoundTimes`.

    A ratio is the time of the first arm divided by the time of another arm; `plan.precision` says
    how precise it has to be. Timing also stops when the budget is spent. The order of the arms is
    drawn anew for each round.

    functions  one for each arm
    calls      list of argument tuples; a round uses one of them, in rotation
    plan       the `Plan` with budget, precision and seed
    series     one `Series` for each arm, as `plan_series` returned them
    """
    rng = np.random.default_rng(plan.seed)
    previous = None  # the function that was called last

    def time_round(number):
        nonlocal previous
        arguments = calls[number % len(calls)]
        times = np.empty((4, len(functions)))
        for arm in rng.permutation(len(functions)):
            fn = functions[arm]
            times[:, arm] = _time_series(clock, fn, arguments, series[arm])
            if previous is fn:
                times[2:, arm] = np.nan
            previous = fn
        return times

    rounds = sample_until_precise(
        plan,
        clock,
        time_round,
        relative_width=_widest_interval,
        first_check=FIRST_CHECK[turns_of(series)],
        min_samples=MIN_SAMPLES_TO_DECIDE,
    )
    return RoundTimes(*np.stack(rounds, axis=1))


def _time_series(clock, fn, arguments, series):
    """Time one series of an arm. Returns a tuple of four times, in seconds per call.

    The first two are the time of the series by the clock and by the clock of this thread. The last
    two are the same for the first call of the series. They are NaN if single calls are timed, or if
    the call is too short to be timed alone.
    """
    first = (np.nan, np.nan)
    if series.cold:
        first = _time_sample(clock, fn, arguments, 1)
        if first[0] < MIN_FIRST_CALL_S:
            first = (np.nan, np.nan)
        for _ in range(series.cold * series.calls - 1):
            fn(*arguments)
        clock.synchronize()
    samples = [_time_sample(clock, fn, arguments, series.calls) for _ in range(series.timed)]
    return (*np.median(samples, axis=0), *first)


def _time_sample(clock, fn, arguments, calls):
    """Time a sample of `calls` calls. Returns seconds per call by two clocks: (wall, thread)."""
    thread_clock = clock.computed or (lambda: 0.0)
    thread_start = thread_clock()
    seconds, _ = clock.time(fn, arguments, calls=calls)
    return seconds, (thread_clock() - thread_start) / calls


def _widest_interval(rounds):
    """Return the relative half-width of the least precise ratio.

    For each arm the ratio of the first arm's time to its own has a 95 % interval. Half the width of
    this interval is divided by the ratio, and the largest of these numbers is returned.

    rounds  list of (4, arms) arrays; row 0 holds the times by the clock
    """
    times = np.stack(rounds)[:, 0]  # (rounds, arms), by the clock
    half_widths = []
    for arm in range(1, times.shape[1]):
        ratios = times[:, 0] / times[:, arm]
        low, high = median_of_rounds(ratios)
        half_widths.append((high - low) / 2 / np.median(ratios))
    return max(half_widths)
