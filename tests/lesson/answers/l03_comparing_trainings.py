"""Answers to the exercises of lesson 03: wrong ones that must be rejected, right ones written differently."""

import math

import numpy as np
from scipy.special import stdtrit


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


def share(differences, *, width=None, ddof=1, root=True, level=0.975, more=0, sides=2, axis=1, percent=100):
    count = differences.shape[axis]
    width = stdtrit(count - 1 + more, level) if width is None else width
    reach = width * differences.std(axis, ddof=ddof) / (math.sqrt(count) if root else 1)
    means = differences.mean(axis)
    return percent * np.mean((np.abs(means) if sides == 2 else means) > reach)


def only_small_ones(differences):
    return 100 - share(differences)


def in_place(differences):
    differences -= 0.0
    differences[0] = 0.0
    return share(differences)


def study_by_study(differences):
    count = 0
    for study in differences:
        _, low, high = by_sums(study, np.zeros(len(study)))
        count += low > 0 or high < 0
    return 100 * count / len(differences)


def by_t_values(differences):
    size = differences.shape[1]
    values = differences.mean(1) / np.sqrt(differences.var(1, ddof=1) / size)
    return float(100 * (values**2 > stdtrit(size - 1, 0.975) ** 2).sum() / len(values))


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
        "in place": in_place,
        "one number per study": lambda differences: 100.0 * (np.abs(differences.mean(1)) > 0.1),
    },
}
RIGHT = {
    "paired-interval": {"by sums": by_sums, "by the t table": by_the_t_table},
    "noticed": {"study by study": study_by_study, "by t values": by_t_values},
}
