"""Answers to the exercises of lesson 03: wrong ones that must be rejected, right ones written differently."""

import math

import numpy as np
from scipy.special import nctdtr, ndtr, stdtr, stdtrit


def interval(one, other, *, width=None, ddof=1, root=True, level=0.975, more=0, sign=1):
    differences = sign * np.subtract(one, other)
    count = len(differences)
    width = stdtrit(count - 1 + more, level) if width is None else width
    reach = width * differences.std(ddof=ddof) / (math.sqrt(count) if root else 1)
    return differences.mean(), differences.mean() - reach, differences.mean() + reach


def unpaired(one, other, *, halves=1):
    mean = np.mean(one) - np.mean(other)
    apart = math.hypot(np.std(one, ddof=1), np.std(other, ddof=1)) / math.sqrt(len(one))
    reach = stdtrit(halves * (len(one) - 1), 0.975) * apart
    return mean, mean - reach, mean + reach


def sorted_in_place(one, other):
    one.sort()
    other.sort()
    return interval(one, other)


def around_the_median(one, other):
    mean, low, high = interval(one, other)
    middle = np.median(np.subtract(one, other))
    return middle, middle - (mean - low), middle + (high - mean)


def by_sums(one, other):
    differences = [float(a) - float(b) for a, b in zip(one, other, strict=True)]
    count = len(differences)
    mean = math.fsum(differences) / count
    variance = math.fsum((each - mean) ** 2 for each in differences) / (count - 1)
    reach = float(stdtrit(count - 1, 0.975)) * math.sqrt(variance / count)
    return [mean, mean - reach, mean + reach]


def by_the_t_table(one, other):
    differences = np.subtract(one, other)
    table = {2: 12.706204736432095, 3: 4.302652729911275, 4: 3.182446305284263, 5: 2.7764451051977987}
    reach = table[len(differences)] * np.sqrt(np.var(differences, ddof=1) / len(differences))
    return tuple(differences.mean() + side * reach for side in (0, -1, 1))


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
    "paired-interval": {
        "1.96": lambda one, other: interval(one, other, width=1.96),
        "1.96 and ddof 0": lambda one, other: interval(one, other, width=1.96, ddof=0),
        "ddof 0": lambda one, other: interval(one, other, ddof=0),
        "spread, not standard error": lambda one, other: interval(one, other, root=False),
        "one side": lambda one, other: interval(one, other, level=0.95),
        "freedom of n": lambda one, other: interval(one, other, more=1),
        "the other way round": lambda one, other: interval(one, other, sign=-1),
        "as if nothing cancelled": unpaired,
        "an unpaired comparison": lambda one, other: unpaired(one, other, halves=2),
        "around the median": around_the_median,
        "sorts each series": lambda one, other: interval(sorted(one), sorted(other)),
        "sorts in place": sorted_in_place,
        "the mean only": lambda one, other: float(np.mean(np.subtract(one, other))),
        "low and high swapped": lambda one, other: [interval(one, other)[place] for place in (0, 2, 1)],
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
    "paired-interval": {"by sums": by_sums, "by the t table": by_the_t_table},
    "pairs-for": {"by halving": by_halving, "all at once": all_at_once},
}
