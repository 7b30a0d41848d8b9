"""Answers to the exercises of lesson 03: wrong ones that must be rejected, right ones written differently."""

import math

import numpy as np
from scipy.special import nctdtr, ndtr, stdtr, stdtrit

from labkit.measure.stats import mean_interval


def by_sums(differences):
    count = len(differences)
    mean = math.fsum(differences) / count
    variance = math.fsum((each - mean) ** 2 for each in differences) / (count - 1)
    reach = float(stdtrit(count - 1, 0.975)) * math.sqrt(variance / count)
    return mean - reach, mean + reach


def share(differences, *, width=None, ddof=1, root=True, level=0.975, more=0, sides=2, axis=1, percent=100):
    count = differences.shape[axis]
    width = stdtrit(count - 1 + more, level) if width is None else width
    reach = width * differences.std(axis, ddof=ddof) / (math.sqrt(count) if root else 1)
    means = differences.mean(axis)
    return percent * np.mean((np.abs(means) if sides == 2 else means) > reach)


def with_an_end_at_0(differences):
    low, high = np.array([by_sums(study) for study in differences]).T
    return 100 * np.mean((low >= 0) | (high <= 0))


def only_small_ones(differences):
    return 100 - share(differences)


def in_place(differences):
    differences -= 0.0
    differences[0] = 0.0
    return share(differences)


def study_by_study(differences):
    count = 0
    for study in differences:
        low, high = by_sums(study)
        count += low > 0 or high < 0
    return 100 * count / len(differences)


def by_mean_interval(differences):
    """With labkit's own interval, which asks for three values."""
    found = [mean_interval(row) for row in differences]
    return 100 * np.mean([each.low > 0 or each.high < 0 for each in found])


def by_t_values(differences):
    size = differences.shape[1]
    values = differences.mean(1) / np.sqrt(differences.var(1, ddof=1) / size)
    return float(100 * (values**2 > stdtrit(size - 1, 0.975) ** 2).sum() / len(values))


def size_for(gap, spread, wanted=0.8, *, freedom=-1, level=0.975, first=2, power=None, sign=abs, add=0):
    """`pairs_for` with one part of it changed."""

    def exact(size):
        reach = stdtrit(size + freedom, level)
        return 1 - nctdtr(size + freedom, sign(gap) / spread * math.sqrt(size), reach)

    size = first
    while (power or exact)(size) < wanted and size < 2000:
        size += 1
    return size + add


def by_the_bell(gap, spread, wanted=0.8):
    return size_for(gap, spread, wanted, power=lambda size: ndtr(abs(gap) / spread * math.sqrt(size) - 1.96))


def without_the_root(gap, spread, wanted=0.8):
    return size_for(
        gap,
        spread,
        wanted,
        power=lambda size: 1 - nctdtr(size - 1, abs(gap) / spread * size, stdtrit(size - 1, 0.975)),
    )


def by_central_t(gap, spread, wanted=0.8):
    """The distribution of t when the truth is 0, moved by d."""
    shift = abs(gap) / spread
    return size_for(
        gap,
        spread,
        wanted,
        power=lambda size: stdtr(size - 1, shift * math.sqrt(size) - stdtrit(size - 1, 0.975)),
    )


def by_halving(gap, spread, wanted=0.8):
    """The same by bisection: power grows with the pairs."""
    low, high = 1, 4096
    while high - low > 1:
        middle = (low + high) // 2
        enough = 1 - nctdtr(middle - 1, abs(gap / spread) * middle**0.5, stdtrit(middle - 1, 0.975)) >= wanted
        low, high = (low, middle) if enough else (middle, high)
    return high


def all_at_once(gap, spread, wanted=0.8):
    sizes = np.arange(2, 1000)
    miss = nctdtr(sizes - 1, abs(gap) * np.sqrt(sizes) / spread, stdtrit(sizes - 1, 0.975))
    return int(sizes[np.argmax(miss <= 1 - wanted)])


WRONG = {
    "noticed": {
        "a share": lambda differences: share(differences, percent=1),
        "1.96": lambda differences: share(differences, width=1.96),
        "ddof 0": lambda differences: share(differences, ddof=0),
        "spread, not standard error": lambda differences: share(differences, root=False),
        "one side of 0": lambda differences: share(differences, sides=1),
        "5 % on each side": lambda differences: share(differences, level=0.95),
        "freedom of n": lambda differences: share(differences, more=1),
        "along the studies": lambda differences: share(differences, axis=0),
        "those that do not notice": only_small_ones,
        "an interval that ends at 0": with_an_end_at_0,
        "in place": in_place,
        "one number per study": lambda differences: 100.0 * (np.abs(differences.mean(1)) > 0.1),
    },
    "pairs-for": {
        "the rule of 2.8": lambda gap, spread, wanted=0.8: max(2, math.ceil((2.8 * spread / gap) ** 2)),
        "by the bell curve": by_the_bell,
        "without pairs": lambda gap, spread, wanted=0.8: 2 * size_for(gap, spread, wanted),
        "5 % on each side": lambda gap, spread, wanted=0.8: size_for(gap, spread, wanted, level=0.95),
        "freedom of n": lambda gap, spread, wanted=0.8: size_for(gap, spread, wanted, freedom=0),
        "always 80 %": lambda gap, spread, wanted=0.8: size_for(gap, spread),
        "one too few": lambda gap, spread, wanted=0.8: size_for(gap, spread, wanted, add=-1),
        "one too many": lambda gap, spread, wanted=0.8: size_for(gap, spread, wanted, add=1),
        "three at least": lambda gap, spread, wanted=0.8: size_for(gap, spread, wanted, first=3),
        "not for a negative difference": lambda gap, spread, wanted=0.8: size_for(gap, spread, wanted, sign=float),
        "without the root": without_the_root,
        "by the central t": by_central_t,
        "at most fifty": lambda gap, spread, wanted=0.8: min(50, size_for(gap, spread, wanted)),
        "the power": lambda gap, spread, wanted=0.8: wanted,
    },
}
RIGHT = {
    "noticed": {"study by study": study_by_study, "by t values": by_t_values, "by mean_interval": by_mean_interval},
    "pairs-for": {"by halving": by_halving, "all at once": all_at_once},
}
