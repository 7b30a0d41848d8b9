"""Exercises of lesson 03: a paired comparison, and how many pairs a study needs."""

import numpy as np
from scipy.special import nctdtr, ndtr, stdtrit

from labkit.lesson.exercises import Exercise, Wrong, expect, expect_close, shorten, untouched

TOLERANCE = 1e-6


def paired_interval(one, other):
    differences = np.asarray(one, float) - np.asarray(other, float)
    count = len(differences)
    reach = stdtrit(count - 1, 0.975) * differences.std(ddof=1) / np.sqrt(count)
    return differences.mean(), differences.mean() - reach, differences.mean() + reach


# (what the case is, accuracies of one, of the other)
PAIRS = (
    ("Five seeds", (81.37, 80.12, 82.05, 79.66, 81.9), (81.02, 79.31, 81.99, 78.83, 80.75)),
    ("Three seeds whose luck cancels", (70.1, 90.2, 80.35), (69.2, 89.1, 79.55)),
    ("Four seeds of which the second method wins most", (71.4, 69.8, 73.3, 70.05), (72.9, 72.2, 73.1, 74.6)),
    ("Two seeds", (91.25, 90.5), (91.1, 88.75)),
)


def verify_paired_interval(answer):
    answer = untouched(answer)
    for what, one, other in PAIRS:
        for kind in (np.array, list):
            found = answer(kind(one), kind(other))
            try:
                mean, low, high = found
            except (TypeError, ValueError):
                raise Wrong(f"Expected three numbers (mean, low, high), found {shorten(found)}.") from None
            wanted = paired_interval(one, other)
            expect_close(mean, wanted[0], f"{what}, mean of one - other{_mean_mistake(mean, one, other)}")
            expect_close(low, wanted[1], f"{what}, low{_reach_mistake(wanted[0] - low, one, other)}")
            expect_close(high, wanted[2], f"{what}, high{_reach_mistake(high - wanted[0], one, other)}")


def _mean_mistake(found, one, other):
    """What a wrong mean looks like, in brackets; empty where none is recognised."""
    differences = np.subtract(one, other)
    known = {
        "that is other - one": -differences.mean(),
        "that is the median": np.median(differences),
    }
    return _recognised(found, known, right=differences.mean())


def _reach_mistake(found, one, other):
    """What a wrong half of the interval looks like, in brackets."""
    differences = np.subtract(one, other)
    count = len(differences)
    paired = differences.std(ddof=1) / np.sqrt(count)
    apart = np.hypot(np.std(one, ddof=1), np.std(other, ddof=1)) / np.sqrt(count)
    width = stdtrit(count - 1, 0.975)
    known = {
        "that is 1.96 standard errors; with so few seeds Student's t wants more": 1.96 * paired,
        "that is 1.96 standard errors, with a standard deviation of ddof=0": 1.96 * differences.std() / np.sqrt(count),
        "the standard deviation divides by the count less one: ddof=1": width * differences.std() / np.sqrt(count),
        "the degrees of freedom are the number of differences less one": stdtrit(count, 0.975) * paired,
        "a mean has the standard error: divide by the root of the count": width * paired * np.sqrt(count),
        "that is the spread as if nothing cancelled: subtract seed by seed first": width * apart,
        "that is an unpaired comparison: subtract seed by seed first": stdtrit(2 * count - 2, 0.975) * apart,
        "0.95 leaves 5 % on each side; 0.975 leaves 2.5 %": stdtrit(count - 1, 0.95) * paired,
    }
    return _recognised(found, known, right=width * paired)


def _recognised(found, known, *, right):
    """The words of `known` whose number was found, in brackets; empty for the right number or one that is unknown."""
    try:
        found = float(found)
    except (TypeError, ValueError):
        return ""

    def same(number):
        return abs(found - number) <= TOLERANCE * abs(number)

    return "" if same(right) else next((f" ({words})" for words, number in known.items() if same(number)), "")


def pairs_for(gap, spread, wanted=0.8):
    def power(size):
        return 1 - nctdtr(size - 1, abs(gap) / spread * np.sqrt(size), stdtrit(size - 1, 0.975))

    size = 2
    while power(size) < wanted:
        size += 1
    return size


# (true difference, spread, wanted power)
STUDIES = (
    (0.7, 0.4, 0.8), (0.31, 0.4, 0.8), (-0.83, 0.6, 0.8), (0.12, 0.37, 0.8), (5.3, 0.4, 0.8),
    (0.9, 1.3, 0.5), (0.9, 1.3, 0.95), (-0.41, 2.6, 0.8), (6.3, 3.1, 0.99),
)  # fmt: skip


def verify_pairs_for(answer):
    for gap, spread, wanted in STUDIES:
        given = (gap, spread) if wanted == 0.8 else (gap, spread, wanted)
        found, right = answer(*given), pairs_for(*given)
        what = f"A difference of {gap:g}, a spread of {spread:g}, power {wanted:g}"
        expect_close(found, right, what + _size_mistake(found, gap, spread, wanted))
    whole = answer(0.7, 0.4)
    expect(float(whole) == int(whole), "A study has a whole number of pairs.")


def _size_mistake(found, gap, spread, wanted):
    """What a wrong number of pairs looks like, in brackets."""
    part = abs(gap) / spread
    sizes = np.arange(2, 4000)
    by_the_bell = 1 - ndtr(1.96 - part * np.sqrt(sizes)) >= wanted
    unpaired = 1 - nctdtr(2 * sizes - 2, part * np.sqrt(sizes / 2), stdtrit(2 * sizes - 2, 0.975)) >= wanted
    one_sided = 1 - nctdtr(sizes - 1, part * np.sqrt(sizes), stdtrit(sizes - 1, 0.95)) >= wanted
    known = {
        "that is the rule of 2.8 standard errors, which is wrong for few pairs": max(2, np.ceil((2.8 / part) ** 2)),
        "that is the power by the bell curve, not by the noncentral t distribution": sizes[np.argmax(by_the_bell)],
        "that is a study without pairs": sizes[np.argmax(unpaired)],
        "0.95 leaves 5 % on each side; 0.975 leaves 2.5 %": sizes[np.argmax(one_sided)],
        "that is power 0.8, whatever is wanted": pairs_for(gap, spread),
        "that is one pair too few": pairs_for(gap, spread, wanted) - 1,
        "that is one pair too many": pairs_for(gap, spread, wanted) + 1,
    }
    return _recognised(found, known, right=pairs_for(gap, spread, wanted))


EXERCISES = (
    Exercise(
        id="paired-interval",
        task="Write the mean difference, seed by seed, and its 95 % interval by Student's t.",
        difficulty=1,
        minutes=6,
        hint="Subtract first. Then everything is about one series: its mean, its standard deviation (ddof=1) over the "
        "root of the count, and as many of these standard errors as stdtrit says.",
        reference=paired_interval,
        verify=verify_paired_interval,
        imports="import numpy as np\nfrom scipy.special import stdtrit",
    ),
    Exercise(
        id="pairs-for",
        task="Write the number of pairs that a study needs to notice a difference.",
        difficulty=2,
        minutes=12,
        hint="Begin with two pairs and add one at a time, until the formula of the power gives enough. What matters of "
        "a negative difference is its size.",
        reference=pairs_for,
        verify=verify_pairs_for,
        imports="import numpy as np\nfrom scipy.special import nctdtr, stdtrit",
    ),
)
