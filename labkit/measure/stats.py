"""The statistics behind every measured number: quantiles with a floor, intervals, outliers."""

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

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


FEWEST = quantile_floor(0.5)  # 11 samples: with fewer, a median decides nothing
FEWEST_OF_MEDIAN = 6  # the first count whose smallest and largest sample hold the median 95 times of 100
FEWEST_OF_MEAN = 3  # trainings, or other values, behind a mean
FEWEST_PAIRS = 16  # answers in pairs: from here on `bootstrap_paired` covers at least 93 times of 100


@dataclass(frozen=True)
class Interval:
    """A 95 % interval, which unpacks as `low, high`; times or divided by a number it stays an interval.

    From fewer samples than its kind needs to cover there is none: it reaches from -inf to inf.
    samples  independent values, or pairs, behind it
    median   the point estimate, where there is one
    fewest   samples from which an interval of its kind may decide anything
    method   what to name beside the number of samples: "t"; empty for order statistics and bootstraps
    """

    low: float
    high: float
    samples: int
    median: float | None = None
    fewest: int = FEWEST
    method: str = ""

    def __iter__(self):
        return iter((self.low, self.high))

    def __mul__(self, factor):
        low, high = sorted((self.low * factor, self.high * factor))
        return replace(self, low=low, high=high, median=None if self.median is None else self.median * factor)

    __rmul__ = __mul__

    def __truediv__(self, divisor):
        return self * (1 / divisor)

    def __str__(self):
        basis = f"; {self.basis}" if self.basis else ""
        known = [abs(each) for each in (self.low, self.median, self.high) if each is not None and math.isfinite(each)]
        places = 2 - sum(max(known, default=0) >= size for size in (10, 100))  # three digits of the largest
        ends = f"[{self.low:.{places}f}, {self.high:.{places}f}{basis}]"
        if not math.isfinite(self.high - self.low):
            ends = f"(no 95 % interval: n = {self.samples})"
        return ends if self.median is None else f"{self.median:.{places}f} {ends}"

    @property
    def basis(self):
        """What stands beside the interval: "t, n = 3"; empty where the kind has no name."""
        return f"{self.method}, n = {self.samples}" if self.method else ""

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


@functools.cache
def _outer_rank(n):
    """The largest k for which the k-th smallest and k-th largest of n samples hold the median 95 times of 100; or 0.

    As many of n independent samples lie below the true median as Binomial(n, 1/2) says: P(fewer than k) <= 2.5 %.
    """
    from scipy.special import bdtr

    return int(np.searchsorted(bdtr(np.arange(n // 2 + 1), n, 0.5), (1 - CONFIDENCE) / 2))


def _of_median(samples, size):
    """95 % `Interval` of the median by order statistics; `size` independent samples say as much as these."""
    ordered, n = np.sort(samples), len(samples)
    middle = float(np.median(ordered))
    if n < FEWEST_OF_MEDIAN:
        return Interval(-math.inf, math.inf, n, middle)
    rank = max(1, int(_outer_rank(int(size)) * n / size))
    return Interval(float(ordered[rank - 1]), float(ordered[-rank]), n, middle)


def median_interval(samples: Any) -> Interval:
    """95 % `Interval` of the median of an autocorrelated series, such as times of calls; none below 6 samples."""
    return _of_median(samples, _effective_size(samples))


def bootstrap_median(samples: Any) -> Interval:
    """95 % `Interval` of the median of independent values, such as ratios of pairs in random order; none below 6.

    A bootstrap of the median picks ranks of the ordered values. Its plain percentiles lie too far inside: they hold
    the median 90 to 97 times of 100 between 10 and 30 values. These are the ranks that hold it at least 95 times.
    """
    return _of_median(samples, len(samples))


def bootstrap_paired(before: Any, after: Any, *, draws: int = DRAWS) -> Interval:
    """95 % bootstrap `Interval` of the mean of `after - before`, both (n,), of the same items; none below 16 items.

    For two models on one test set, with 1 where an image is right and 0 where not: most images are right (or wrong)
    for both and cancel, so the interval of the difference is far narrower than those of the two accuracies. A resample
    of n differences is a multinomial draw of how often each of their few values comes.

    Half an item more is drawn from that gets better by the largest value, and half an item that gets worse. Without
    them a bootstrap knows only changes that were seen: of 64 images of which 2 % change it held the truth 73 times of
    100, and where none of them changed its interval was a point.
    """
    before, after = np.asarray(before, float), np.asarray(after, float)
    most = np.abs([before, after]).max()
    values, counts = np.unique(after - before, return_counts=True)
    n, middle = len(before), float(np.mean(after - before))
    if n < FEWEST_PAIRS:
        return Interval(-math.inf, math.inf, n, middle, fewest=FEWEST_PAIRS)
    values, counts = np.append(values, [-most, most]), np.append(counts, [0.5, 0.5])
    means = np.random.default_rng(0).multinomial(n, counts / (n + 1), draws) @ values / n
    return replace(middle_part(means, n, middle), fewest=FEWEST_PAIRS)


def bootstrap_rounds(statistic: Callable, *samples: Any, draws: int = 400) -> Interval:
    """95 % percentile bootstrap `Interval` of `statistic(*medians)`: whole rounds are drawn again.

    For a number computed from many medians, such as the error of a fit; as each draw is a fit, there are fewer of them.
    There is none below 11 rounds.
    statistic  of one array (n,) of medians for each of `samples`; -> number
    samples    arrays (n, rounds) of seconds, measured in the same rounds
    """
    rounds, random = samples[0].shape[1], np.random.default_rng(0)

    def once(draw):
        return statistic(*(np.median(each[:, draw], axis=1) for each in samples))

    if rounds < FEWEST:
        return Interval(-math.inf, math.inf, rounds, float(once(np.arange(rounds))))
    found = [once(random.integers(0, rounds, rounds)) for _ in range(draws)]
    return middle_part(found, rounds, once(np.arange(rounds)))


def middle_part(estimates, samples, median):
    """The `Interval` that holds the middle 95 % of bootstrapped estimates."""
    low, high = np.quantile(estimates, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return Interval(float(low), float(high), samples, float(median))


def mean_interval(values: Any) -> Interval:
    """Mean of independent values, such as one per seed, and its 95 % `Interval` by Student's t; none below 3 values.

    It covers where the values spread like a bell curve; its mean stands in `median`.
    """
    values = np.asarray(values, dtype=float)
    mean, n = float(values.mean()), len(values)
    reach = math.inf
    if n >= FEWEST_OF_MEAN:
        from scipy.special import stdtrit

        reach = float(stdtrit(n - 1, (1 + CONFIDENCE) / 2) * values.std(ddof=1)) / math.sqrt(n)
    return Interval(mean - reach, mean + reach, n, mean, fewest=FEWEST_OF_MEAN, method="t")


def mean_ratio(values: Any, others: Any) -> Interval:
    """Geometric mean of `values / others`, pair by pair and all above 0, and its 95 % `Interval` by Student's t."""
    logs = mean_interval(np.log(values) - np.log(others))
    with np.errstate(over="ignore"):
        low, high, middle = np.exp([*logs, logs.mean]).tolist()
    return replace(logs, low=low, high=high, median=middle)


def spread(samples):
    """Interquartile range over the median: 0 for a constant series, and deaf to a few spikes."""
    low, middle, high = np.quantile(samples, [0.25, 0.5, 0.75])
    return float((high - low) / middle) if middle > 0 else 0.0


def drift(samples):
    """Median of the last third over the median of the first third, minus 1; of 3 samples or more."""
    third = len(samples) // 3
    return float(np.median(samples[-third:]) / np.median(samples[:third]) - 1)


def is_stable(samples):
    """The warm-up rule: the medians of the last two windows of 5 calls differ by at most 5 %."""
    if len(samples) < 10:
        return False
    before, now = np.median(samples[-10:-5]), np.median(samples[-5:])
    return bool(abs(now - before) <= 0.05 * before)
