"""Time calls in turn: in each round every call once, in random order.

Two times of one round were taken under nearly the same conditions, so their ratio says more than
the ratio of two times that were taken minutes apart. The first call is measured a second time in
each round. This null arm shows which differences the machine measures where there is none.
`labkit.measure.compare` also checks that all calls do the same work.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from labkit.errors import MeasureError, require_known
from labkit.measure.clock import Plan, clock_of
from labkit.measure.noise import noise_of
from labkit.measure.rounds import TURNS, plan_series, time_rounds, turns_of, warm_up_arms
from labkit.measure.stats import Interval, median_interval, median_of_rounds

if TYPE_CHECKING:
    import torch

SAME = "not distinguishable"
TOO_FEW = "too few pairs"
NULL_ARM = "the same again"  # the first call under a second name


def in_turn(
    calls: dict[str, Callable],
    *,
    seconds: float = 3.0,
    precision: float = 0.005,
    turns: str = "series",
    device: "torch.device | None" = None,
    seed: int = 0,
) -> "Times":
    """Time functions without arguments in turn. Returns `Times`.

    The ratios in `Times` say how many times as fast a function is as the first.

    calls      {name: function}; they need not do the same work
    seconds    time budget of the timed calls, after a warm-up; 6 rounds are timed in any case
    precision  stop early when every ratio is this precise: half the width of its 95 % interval,
               divided by the ratio. 0: use all the time
    turns      "series": a function is called many times when its turn comes, and the first of these
               calls do not count. This gives the time of a function that runs alone. "calls": a
               function is called once when its turn comes. This gives its time where calls of all
               functions alternate
    device     a device, or a `Clock` to measure with
    seed       seed of the random order
    Raises     MeasureError: `calls` is empty
    """
    require_known(turns, TURNS, "order of turns")
    if not calls:
        raise MeasureError(
            "There is nothing to measure.", expected="{name: function}", found="an empty dictionary"
        )
    names = list(calls)
    functions = [*calls.values(), calls[names[0]]]  # the last one is the null arm
    plan = Plan(seconds=seconds, precision=precision, seed=seed)
    timed = time_arms(clock_of(device), functions, [()], plan, turns)
    return Times(tuple(names), timed.times, timed.turns, timed.why)


@dataclass(frozen=True)
class RatioInTurn(Interval):
    """How many times as fast a call is as the first: median over the rounds, with a 95 % interval.

    floor  noise floor, as `floor_of` returns it: ratios between 1 / (1 + floor) and 1 + floor
           cannot be distinguished from 1
    """

    floor: float = field(default=0.0, kw_only=True)

    @property
    def verdict(self):
        """The verdict in words: "faster", "slower", "not distinguishable" or "too few pairs"."""
        return verdict(self.low, self.high, self.floor) if self.enough else TOO_FEW


@dataclass(frozen=True)
class Times:
    """The result of `in_turn`: the times of several calls, round by round.

    `times["new"]` is the `RatioInTurn` of the call "new" to the first call: above 1 is faster.

    names    names of the calls; all are compared with the first
    seconds  (rounds, calls + 1) seconds per call. The last column is the null arm: the first call,
             timed a second time
    turns    "series" or "calls"
    noise    why the machine counts as noisy, or None
    """

    names: tuple
    seconds: np.ndarray = field(repr=False)
    turns: str = "series"
    noise: str | None = None

    def __getitem__(self, name):
        ratios = self.ratios(name)
        interval = interval_of_ratios(ratios)
        return RatioInTurn(*interval, len(ratios), interval.median, floor=self.floor)

    def ratios(self, name, reference=None):
        """Return for each round how many times as fast `name` is as `reference`: (rounds,).

        name       name of a call
        reference  name of the call to compare with; None: the first call
        """
        return self._seconds_of(reference or self.names[0]) / self._seconds_of(name)

    def _seconds_of(self, name):
        """Return the (rounds,) seconds of a call, or of the null arm."""
        require_known(name, [*self.names, NULL_ARM], "measured call")
        return self.seconds[:, self.names.index(name) if name in self.names else -1]

    @property
    def null(self):
        """The null arm: the `RatioInTurn` of the first call to itself."""
        return self[NULL_ARM]

    @property
    def floor(self):
        """Noise floor, as `floor_of` returns it: how far the null arm's interval reaches from 1."""
        return floor_of(self.ratios(NULL_ARM))

    def milliseconds(self, name):
        """Return the median time of a call in ms, as a 95 % `Interval`."""
        require_known(name, self.names, "measured call")
        return median_interval(1e3 * self.seconds[:, self.names.index(name)])

    @property
    def frame(self):
        """A DataFrame with a row for each call and one for the null arm.

        The columns are the call, its median time in ms, the ratio ("times as fast") with the ends
        of its interval, and the verdict.
        """
        import pandas as pd

        rows = []
        for column, name in enumerate([*self.names, NULL_ARM]):
            milliseconds = 1e3 * float(np.median(self.seconds[:, column]))
            row = {"call": name, "time (ms)": milliseconds, "times as fast": 1.0, "verdict": ""}
            if column > 0:
                ratio = self[name]
                row |= {
                    "times as fast": ratio.median,
                    "low": ratio.low,
                    "high": ratio.high,
                    "verdict": ratio.verdict,
                }
            rows.append(row)
        return pd.DataFrame(
            rows, columns=["call", "time (ms)", "times as fast", "low", "high", "verdict"]
        )

    def _repr_html_(self):
        return self.frame.to_html(index=False, float_format="{:.4g}".format, na_rep="")


@dataclass(frozen=True)
class Timed:
    """Times of arms that were measured in rounds.

    times   (rounds, arms) seconds per call, in series or of single calls
    first   (rounds, arms) seconds of the first call of each series; NaN where it was not timed
    turns   "series" or "calls"
    noisy   True if the machine was noisy
    why     the reasons for `noisy`, and what was done about them; None for a quiet machine
    """

    times: np.ndarray
    first: np.ndarray
    turns: str
    noisy: bool
    why: str | None


def time_arms(clock, functions, calls, plan, turns):
    """Warm the arms up and time them in turn. Returns a `Timed`.

    functions  one for each arm
    calls      list of argument tuples, used in rotation
    plan       the `Plan` with the time budget, the precision and the seed of the random order
    turns      "series" or "calls"
    """
    series = plan_series(warm_up_arms(clock, functions, calls, plan), plan, turns)
    usage_before = clock.usage()
    rounds = time_rounds(clock, functions, calls, plan=plan, series=series)
    noise = noise_of(usage_before, clock.usage(), rounds.wall[:, 0])

    # Take the waiting out where that is possible, and say what was done.
    times = rounds.wall
    first = rounds.wall_first
    why = noise.why
    if noise.diluted and noise.alone and clock.computed:
        times = rounds.thread
        first = rounds.thread_first
        why = f"{why}; so the times are those of the thread's own clock, without the waiting"
    elif noise.diluted and clock.event is None:
        why = f"{why}; waiting dilutes the ratios: the true difference may be larger"
    return Timed(times, first, turns_of(series), noise.noisy, why)


def interval_of_ratios(ratios):
    """Return the `Interval` of the median ratio over the rounds.

    Rounds without a finite ratio are left out.

    ratios  (rounds,)
    """
    ratios = ratios[np.isfinite(ratios)]
    if not len(ratios):
        return Interval(-math.inf, math.inf, 0)
    return median_of_rounds(ratios)


def floor_of(null_ratios):
    """Return the noise floor: how far the interval of the null arm's ratio reaches from 1.

    An interval that ends at 1.25 or at 0.8 (1 / 1.25) gives a floor of 0.25. The band from 1 / (1 +
    floor) to 1 + floor then holds the whole interval. With too few rounds for an interval the floor
    is infinite.

    null_ratios  (rounds,) the first arm's time divided by that of the null arm, which is the first
                 arm timed a second time
    """
    low, high = interval_of_ratios(null_ratios)
    if low <= 0:
        return math.inf
    return max(high, 1 / low) - 1


def verdict(low: float, high: float, floor: float) -> str:
    """Return "faster", "slower" or "not distinguishable" for the interval of a ratio.

    low, high  ends of the interval
    floor      noise floor. The ratio is distinguishable from 1 only if its whole interval lies
               above 1 + floor or below 1 / (1 + floor)
    """
    if low > 1 + floor:
        return "faster"
    if high < 1 / (1 + floor):
        return "slower"
    return SAME
