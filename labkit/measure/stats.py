"""The statistics behind every measured number: quantiles with a floor, intervals, outliers."""

import functools
import math
from dataclasses import dataclass, replace

import numpy as np

CONFIDENCE = 0.95  # of every interval
DRAWS = 2000  # bootstrap resamples


@functools.cache
def quantile_floor(q, confidence=0.99):
    """Fewest samples from which the `q` quantile may be reported: 130 for 0.95, 662 for 0.99.

    The smallest n for which at least two samples lie above the true quantile with this confidence, that is
    P(Binomial(n, 1 - q) <= 1) <= 1 - confidence. With fewer, "the p99" is one lucky or unlucky maximum.
    Source: the early-stopping rule of MLPerf LoadGen, which allows one of the 662 samples to be over the bound.
    """
    n = 2
    while q**n + n * (1 - q) * q ** (n - 1) > 1 - confidence:
        n += 1
    return n


FEWEST = quantile_floor(0.5)  # 11 samples: with fewer, an interval of a median says nothing


@dataclass(frozen=True)
class Interval:
    """A 95 % interval, which unpacks as `low, high`; times or divided by a number it stays an interval.

    samples  independent values, or pairs, behind it
    median   the point estimate, where there is one
    fewest   samples from which an interval of its kind may decide anything
    """

    low: float
    high: float
    samples: int
    median: float | None = None
    fewest: int = FEWEST

    def __iter__(self):
        return iter((self.low, self.high))

    def __mul__(self, factor):
        low, high = sorted((self.low * factor, self.high * factor))
        return replace(self, low=low, high=high, median=None if self.median is None else self.median * factor)

    __rmul__ = __mul__

    def __truediv__(self, divisor):
        return self * (1 / divisor)

    def __str__(self):
        ends = f"[{self.low:.2f}, {self.high:.2f}]"
        return ends if self.median is None else f"{self.median:.2f} {ends}"

    @property
    def mean(self):
        """The point estimate, under the name that suits an interval of means."""
        return self.median

    @property
    def enough(self):
        """True when there are enough samples to decide by the interval."""
        return self.samples >= self.fewest


def quantile(samples, q):
    """(value, None), or (None, reason) when there are fewer samples than the quantile's floor."""
    floor = quantile_floor(q)
    if len(samples) < floor:
        return None, f"p{100 * q:g} needs {floor} samples, there are {len(samples)}"
    return float(np.quantile(samples, q)), None


def _effective_size(samples):
    """How many independent samples a series is worth: n (1 - r) / (1 + r), r its lag-1 rank correlation.

    A drifting or bimodal series repeats itself, so its n samples say less than n independent ones.
    Ranks, because one spike would otherwise hide the correlation of all the rest.
    """
    n = len(samples)
    if n < 3 or np.ptp(samples) == 0:
        return float(n)
    ranks = np.argsort(np.argsort(samples, kind="stable"), kind="stable") - (n - 1) / 2
    r = float(np.dot(ranks[1:], ranks[:-1]) / np.dot(ranks, ranks))
    return n * (1 - r) / (1 + r) if r > 0 else float(n)


def median_interval(samples):
    """95 % `Interval` of the median, from the order statistics of an autocorrelated series.

    The rank of the true median among n independent samples is Binomial(n, 1/2): n/2 plus or minus 0.98 sqrt(n).
    """
    ordered, n = np.sort(samples), len(samples)
    reach = 0.98 * n / math.sqrt(_effective_size(samples))
    low, high = math.floor(n / 2 - reach), math.ceil(n / 2 + reach)
    return Interval(float(ordered[max(low - 1, 0)]), float(ordered[min(high, n - 1)]), n, float(np.median(ordered)))


def bootstrap_median(samples, *, draws=DRAWS, seed=0):
    """95 % percentile bootstrap `Interval` of the median.

    Resampling n values and taking the middle one is the same as picking the order statistic whose rank is
    floor(n B), B ~ Beta(m, n + 1 - m), m = (n + 1) / 2: the middle of n uniform numbers. So no resample is built.
    """
    ordered, n = np.sort(samples), len(samples)
    middle = (n + 1) / 2
    ranks = np.floor(n * np.random.default_rng(seed).beta(middle, n + 1 - middle, draws)).astype(int)
    return _middle_part(ordered[ranks], n, np.median(ordered))


def bootstrap_paired(before, after, *, draws=DRAWS, seed=0):
    """95 % percentile bootstrap `Interval` of the mean of `after - before`, both (n,), of the same items.

    For two models on one test set, with 1 where an image is right and 0 where not: most images are right (or wrong)
    for both and cancel, so the interval of the difference is far narrower than those of the two accuracies. A resample
    of n differences is a multinomial draw of how often each of their few values comes.
    """
    values, counts = np.unique(np.asarray(after, float) - np.asarray(before, float), return_counts=True)
    n = int(counts.sum())
    means = np.random.default_rng(seed).multinomial(n, counts / n, draws) @ values / n
    return _middle_part(means, n, counts @ values / n)


def bootstrap_rounds(statistic, *samples, draws=400, seed=0):
    """95 % percentile bootstrap `Interval` of `statistic(*medians)`: whole rounds are drawn again.

    For a number computed from many medians, such as the error of a fit; as each draw is a fit, there are fewer of them.
    statistic  of one array (n,) of medians for each of `samples`; -> number
    samples    arrays (n, rounds) of seconds, measured in the same rounds
    """
    rounds, random = samples[0].shape[1], np.random.default_rng(seed)

    def once(draw):
        return statistic(*(np.median(each[:, draw], axis=1) for each in samples))

    found = [once(random.integers(0, rounds, rounds)) for _ in range(draws)]
    return _middle_part(found, rounds, once(np.arange(rounds)))


def _middle_part(estimates, samples, median):
    """The `Interval` that holds the middle 95 % of bootstrapped estimates."""
    low, high = np.quantile(estimates, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return Interval(float(low), float(high), samples, float(median))


def mean_interval(values):
    """Mean of independent values and its 95 % `Interval` by Student's t; endless for a single one.

    The t-interval holds from two values on, if they spread like a bell curve; its mean stands in `median`.
    """
    values = np.asarray(values, dtype=float)
    mean, n = float(values.mean()), len(values)
    if n < 2:
        return Interval(-math.inf, math.inf, n, mean, fewest=2)
    from scipy.special import stdtrit

    reach = float(stdtrit(n - 1, (1 + CONFIDENCE) / 2) * values.std(ddof=1)) / math.sqrt(n)
    return Interval(mean - reach, mean + reach, n, mean, fewest=2)


def mean_ratio(values, others):
    """Geometric mean of `values / others`, pair by pair and all above 0, and its 95 % `Interval` by Student's t."""
    logs = mean_interval(np.log(values) - np.log(others))
    low, high, middle = (math.exp(min(log, 700)) for log in (logs.low, logs.high, logs.median))
    return replace(logs, low=low, high=high, median=middle)


def spread(samples):
    """Interquartile range over the median: 0 for a constant series, and deaf to a few spikes."""
    low, middle, high = np.quantile(samples, [0.25, 0.5, 0.75])
    return float((high - low) / middle) if middle > 0 else 0.0


def drift(samples):
    """Median of the last third over the median of the first third, minus 1."""
    third = len(samples) // 3
    if third < 3:
        return 0.0
    return float(np.median(samples[-third:]) / np.median(samples[:third]) - 1)


def is_stable(samples, *, window=5, tolerance=0.05):
    """The warm-up rule: the medians of the last two windows of calls differ by at most `tolerance`."""
    if len(samples) < 2 * window:
        return False
    before, now = np.median(samples[-2 * window : -window]), np.median(samples[-window:])
    return bool(abs(now - before) <= tolerance * before)
