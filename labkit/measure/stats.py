"""Compute the quantiles and intervals behind every measured number."""

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

CONFIDENCE = 0.95  # of every interval
DRAWS = 2000  # bootstrap resamples


@functools.cache
def samples_for_quantile(q, confidence=0.99):
    """Return the number of samples from which the `q` quantile may be reported.

    This is the smallest n for which, with probability `confidence`, at least two samples lie above
    the true quantile: P(Binomial(n, 1 - q) <= 1) <= 1 - confidence. With a confidence of 0.99, the
    p95 needs 130 samples and the p99 needs 662. With fewer, "the p99" is one lucky or unlucky
    maximum.

    Source  the early-stopping rule of MLPerf LoadGen, which allows one of 662 samples above the
            bound
    """
    n = 2
    while q**n + n * (1 - q) * q ** (n - 1) > 1 - confidence:
        n += 1
    return n


MIN_SAMPLES_TO_DECIDE = samples_for_quantile(0.5)  # 11: a median of fewer samples decides nothing
# from 6 samples on, the smallest and the largest enclose the median 95 times of 100
MIN_SAMPLES_OF_MEDIAN = 6
MIN_SAMPLES_OF_MEAN = 3
MIN_PAIRS = 16  # from 16 pairs on, `bootstrap_paired` covers at least 93 times of 100


@dataclass(frozen=True)
class Interval:
    """A 95 % interval. Multiplied or divided by a number, an interval stays an `Interval`.

    An interval unpacks as `low, high`. If there are too few samples to compute an interval, low is
    -inf and high is inf.

    samples      number of independent values, or pairs, that the interval was computed from
    median       point estimate, if there is one
    min_samples  number of samples that a verdict needs: with fewer, `enough` is False
    method       name to show beside the number of samples: "t"; empty for order statistics and
                 bootstraps
    """

    low: float
    high: float
    samples: int
    median: float | None = None
    min_samples: int = MIN_SAMPLES_TO_DECIDE
    method: str = ""

    def __iter__(self):
        return iter((self.low, self.high))

    def __mul__(self, factor):
        # a negative factor exchanges the ends
        low, high = sorted((self.low * factor, self.high * factor))
        median = None if self.median is None else self.median * factor
        return replace(self, low=low, high=high, median=median)

    __rmul__ = __mul__

    def __truediv__(self, divisor):
        return self * (1 / divisor)

    def __str__(self):
        # Three significant digits of the largest number: 2 decimals below 10, 1 below 100, 0 above.
        numbers = [self.low, self.high]
        if self.median is not None:
            numbers.append(self.median)
        largest = max((abs(number) for number in numbers if math.isfinite(number)), default=0)
        decimals = 2
        if largest >= 10:
            decimals = 1
        if largest >= 100:
            decimals = 0

        if not math.isfinite(self.high - self.low):
            ends = f"(no 95 % interval: n = {self.samples})"
        elif self.basis:
            ends = f"[{self.low:.{decimals}f}, {self.high:.{decimals}f}; {self.basis}]"
        else:
            ends = f"[{self.low:.{decimals}f}, {self.high:.{decimals}f}]"
        if self.median is None:
            return ends
        return f"{self.median:.{decimals}f} {ends}"

    @property
    def basis(self):
        """The method and the number of samples: "t, n = 3"; empty for a method without a name."""
        if not self.method:
            return ""
        return f"{self.method}, n = {self.samples}"

    @property
    def mean(self):
        """The point estimate (`median`), under the name that fits an interval of a mean."""
        return self.median

    @property
    def enough(self):
        """True if there are enough samples (`min_samples`) for a verdict."""
        return self.samples >= self.min_samples


def quantile(samples, q):
    """Return the `q` quantile of samples as (value, None), or (None, reason) if they are too few.

    q  0.5 or more, below 1: 0.95 for the p95
    """
    needed = samples_for_quantile(q)
    if len(samples) < needed:
        return None, f"p{100 * q:g} needs {needed} samples, there are {len(samples)}"
    return float(np.quantile(samples, q)), None


def _effective_size(samples):
    """Return how many independent samples an autocorrelated series is worth.

    This is n (1 - r) / (1 + r), where r is the correlation of the ranks of neighbouring samples.
    Neighbours in a drifting or bimodal series resemble each other, so n samples say less than n
    independent ones. Ranks are used because one spike in the values would hide the correlation of
    all the others.
    """
    n = len(samples)
    if n < 3 or np.ptp(samples) == 0:
        return float(n)
    order = np.argsort(samples, kind="stable")
    ranks = np.argsort(order, kind="stable") - (n - 1) / 2  # of each sample, with mean 0
    r = float(np.dot(ranks[1:], ranks[:-1]) / np.dot(ranks, ranks))
    if r <= 0:  # a series that swings to and fro is worth no more than its n samples
        return float(n)
    return n * (1 - r) / (1 + r)


@functools.cache
def _outer_rank(n):
    """Return the rank k at which the 95 % interval of the median ends; 0 if n is too small.

    k is the largest rank for which the k-th smallest and the k-th largest of n independent samples
    enclose the median in 95 of 100 cases. The number of samples below the true median is
    distributed as Binomial(n, 1/2), and P(fewer than k) must be at most 2.5 %. For n = 6, k is 1:
    P(no sample below) = 1/64 = 1.6 %.
    """
    from scipy.special import bdtr

    # P(at most i samples below the median), i = 0, 1, ...
    below = bdtr(np.arange(n // 2 + 1), n, 0.5)
    return int(np.searchsorted(below, (1 - CONFIDENCE) / 2))


def _order_interval(samples, effective_size):
    """Return the 95 % `Interval` of the median, with two of the ordered samples as its ends.

    effective_size  number of independent samples that say as much as these samples; smaller than
                    their number if the samples are autocorrelated
    """
    n = len(samples)
    ordered = np.sort(samples)
    median = float(np.median(ordered))
    if n < MIN_SAMPLES_OF_MEDIAN:
        return Interval(-math.inf, math.inf, n, median)

    # The rank among the independent samples, as a rank among all samples.
    rank = int(_outer_rank(int(effective_size)) * n / effective_size)
    rank = max(1, rank)
    return Interval(float(ordered[rank - 1]), float(ordered[-rank]), n, median)


def median_interval(samples: Any) -> Interval:
    """Return the 95 % `Interval` of the median of an autocorrelated series, such as times of calls.

    The interval is infinite for fewer than 6 samples.
    """
    return _order_interval(samples, _effective_size(samples))


def median_of_rounds(samples: Any) -> Interval:
    """Return the 95 % `Interval` of the median of independent values.

    Such values are the ratios of paired times. The interval is infinite for fewer than 6 values.
    Its ends are two of the ordered values, as those of a percentile bootstrap of the median are.
    That bootstrap picks values too close to the middle: with 10 to 30 values its interval encloses
    the true median 90 to 97 times of 100. The interval computed here encloses it at least 95 times.
    """
    return _order_interval(samples, len(samples))


def bootstrap_paired(before: Any, after: Any, *, draws: int = DRAWS) -> Interval:
    """Return the 95 % bootstrap `Interval` of the mean of `after - before`, item by item.

    before, after  (n,) numbers, two measurements of the same items; for two models on one test set
                   1 where an image is classified correctly, else 0
    draws          number of bootstrap resamples

    The interval is infinite for fewer than 16 items. Most images are right for both models, or
    wrong for both; their differences are 0. So this interval is far narrower than those of the two
    accuracies.

    A plain bootstrap cannot draw a change that did not occur in the data. With 64 images and a true
    change of 2 % its interval covered the truth only 73 times of 100; where no image changed, it
    was a point. Therefore two items of weight 1/2 are added to the data: one improves by the
    largest possible amount, the other gets worse by this amount.
    """
    before = np.asarray(before, float)
    after = np.asarray(after, float)
    differences = after - before
    n = len(differences)
    mean = float(np.mean(differences))
    if n < MIN_PAIRS:
        return Interval(-math.inf, math.inf, n, mean, min_samples=MIN_PAIRS)

    # Add the two pseudo-items to the few different values that occur.
    largest = np.abs([before, after]).max()
    values, counts = np.unique(differences, return_counts=True)
    values = np.append(values, [-largest, largest])
    counts = np.append(counts, [0.5, 0.5])

    # A resample of n differences is a multinomial draw: how many times each value occurs.
    rng = np.random.default_rng(0)
    resamples = rng.multinomial(n, counts / (n + 1), draws)  # (draws, values)
    interval = percentile_interval(resamples @ values / n, n, mean)
    return replace(interval, min_samples=MIN_PAIRS)


def bootstrap_rounds(statistic: Callable, *samples: Any, draws: int = 400) -> Interval:
    """Return the 95 % bootstrap `Interval` of a number that is computed from many medians.

    An example of such a number is the error of a curve fitted to n measured times.

    statistic  function that returns the number. Its arguments are arrays (n,) of medians over the
               rounds, one for each of `samples`
    samples    arrays (n, rounds) of seconds, measured in the same rounds
    draws      number of resamples; each calls `statistic` once

    Whole rounds are drawn, so times that were measured together stay together. The interval is
    infinite for fewer than 11 rounds.
    """
    rounds = samples[0].shape[1]

    def statistic_of(chosen_rounds):
        medians = [np.median(array[:, chosen_rounds], axis=1) for array in samples]
        return statistic(*medians)

    estimate = float(statistic_of(np.arange(rounds)))
    if rounds < MIN_SAMPLES_TO_DECIDE:
        return Interval(-math.inf, math.inf, rounds, estimate)
    rng = np.random.default_rng(0)
    estimates = [statistic_of(rng.integers(0, rounds, rounds)) for _ in range(draws)]
    return percentile_interval(estimates, rounds, estimate)


def percentile_interval(estimates: Any, samples: int, median: float) -> Interval:
    """Return the `Interval` of the middle 95 % of bootstrap estimates.

    samples  number of independent values that the estimates were resampled from
    median   the point estimate
    """
    low, high = np.quantile(estimates, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return Interval(float(low), float(high), samples, float(median))


def mean_interval(values: Any) -> Interval:
    """Return the 95 % `Interval` of the mean of independent values, by Student's t.

    The values are, for instance, the accuracies of several seeds. `mean` of the interval is their
    mean. The interval is infinite for fewer than 3 values. It covers the true mean 95 times of 100
    if the values are about normally distributed.
    """
    values = np.asarray(values, dtype=float)
    n = len(values)
    mean = float(values.mean())
    half_width = math.inf
    if n >= MIN_SAMPLES_OF_MEAN:
        from scipy.special import stdtrit

        t = stdtrit(n - 1, (1 + CONFIDENCE) / 2)
        half_width = float(t * values.std(ddof=1)) / math.sqrt(n)
    return Interval(
        mean - half_width, mean + half_width, n, mean, min_samples=MIN_SAMPLES_OF_MEAN, method="t"
    )


def mean_ratio(values: Any, references: Any) -> Interval:
    """Return the 95 % `Interval` of the geometric mean of `values / references`, by Student's t.

    values, references  (n,) numbers above 0, paired by position
    """
    log_ratio = mean_interval(np.log(values) - np.log(references))
    with np.errstate(over="ignore"):  # exp(inf) is inf
        low, high, mean = np.exp([log_ratio.low, log_ratio.high, log_ratio.mean]).tolist()
    return replace(log_ratio, low=low, high=high, median=mean)
