"""Exercises of lesson 03: a paired comparison, and how many studies notice a difference."""

import numpy as np
from scipy.special import stdtrit

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


def noticed(differences):
    differences = np.asarray(differences, float)
    count = differences.shape[1]
    errors = differences.std(axis=1, ddof=1) / np.sqrt(count)
    outside = np.abs(differences.mean(axis=1)) > stdtrit(count - 1, 0.975) * errors
    return 100 * outside.mean()


# {what the case is: (studies, seeds) differences}; the mean ± the wanted standard errors, seeds spread to both sides
def _study(mean, errors, count):
    """`count` differences with that mean, whose mean lies so many standard errors away from 0."""
    shape = np.linspace(-1, 1, count) + 0.3 * np.cos(np.arange(count))
    shape = (shape - shape.mean()) / shape.std(ddof=1)
    return mean + shape * abs(mean) / errors * np.sqrt(count)


def _cases():
    draw = np.random.default_rng(3)
    return {
        "Three seeds, between 1.96 and 4.3 standard errors": np.array(
            [_study(0.4, each, 3) for each in (2.5, 3.9, 4.5)]
        ),
        "Differences on the other side of 0": np.array([_study(-0.7, each, 5) for each in (2.2, 2.9, 3.3, 9)]),
        "Five seeds near the limit of 2.78": np.array([_study(1.3, each, 5) for each in (2.5, 2.7, 2.85, 3.1, 2.74)]),
        "Seven studies of two seeds": draw.normal(0.5, 0.1, (7, 2)),
        "Many studies of eight seeds": draw.normal(0.15, 0.4, (501, 8)),
    }


def verify_noticed(answer):
    answer = untouched(answer)
    for what, differences in _cases().items():
        expect_close(answer(differences), noticed(differences), what + _count_mistake(answer, differences))
    whole = answer(np.array([[0.4, 0.5, 0.6], [0.1, -0.2, 0.1]]))
    expect(
        not isinstance(whole, np.ndarray) or whole.ndim == 0, "Return one number for all studies, not one per study."
    )


def _count_mistake(answer, differences):
    """What a wrong share of studies looks like, in brackets."""
    found, count = answer(differences), differences.shape[1]
    means, errors = differences.mean(1), differences.std(1, ddof=1) / np.sqrt(count)
    width = stdtrit(count - 1, 0.975)
    known = {
        "that is a share: times 100": noticed(differences) / 100,
        "those are the studies that do not notice": 100 - noticed(differences),
        "a difference below 0 counts, too": 100 * np.mean(means > width * errors),
        "that takes 1.96 standard errors": 100 * np.mean(np.abs(means) > 1.96 * errors),
        "the standard deviation wants ddof=1": 100
        * np.mean(np.abs(means) > width * differences.std(1) / np.sqrt(count)),
        "the standard error divides by the root of the seeds": 100
        * np.mean(np.abs(means) > width * errors * count**0.5),
        "0.95 leaves 5 % on each side": 100 * np.mean(np.abs(means) > stdtrit(count - 1, 0.95) * errors),
        "the degrees of freedom are the seeds less one": 100 * np.mean(np.abs(means) > stdtrit(count, 0.975) * errors),
    }
    return _recognised(found, known, right=noticed(differences))


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
        id="noticed",
        task="Write the share of studies whose 95 % interval leaves 0 out.",
        difficulty=2,
        minutes=10,
        hint="An interval leaves 0 out when its mean lies further from 0 than the interval reaches to one side. "
        "All studies at once: take mean and standard deviation along axis 1.",
        reference=noticed,
        verify=verify_noticed,
        imports="import numpy as np\nfrom scipy.special import stdtrit",
    ),
)
