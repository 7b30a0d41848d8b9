"""Exercises of lesson 03: how many studies notice a difference, and how many pairs a study needs."""

import numpy as np
from scipy.special import nctdtr, ndtr, stdtrit

from labkit.lesson.exercises import Exercise, expect, expect_close, untouched

TOLERANCE = 1e-6


def _recognised(found, known, *, right):
    """The words of `known` whose number was found, in brackets; empty where none fits, or more than two do."""
    try:
        found = float(found)
    except (TypeError, ValueError):
        return ""

    def same(number):
        return abs(found - number) <= TOLERANCE * abs(number)

    fitting = [] if same(right) else [words for words, number in known.items() if same(number)]
    return f" ({', or '.join(fitting)})" if 1 <= len(fitting) <= 2 else ""


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
        "Many studies of eight seeds": draw.normal(0.15, 0.4, (501, 8)),  # first: each mistake has a number of its own
        "Three seeds, between 1.96 and 4.3 standard errors": np.array(
            [_study(0.4, each, 3) for each in (2.5, 3.9, 4.5)]
        ),
        "Differences on the other side of 0": np.array([_study(-0.7, each, 5) for each in (2.2, 2.9, 3.3, 9)]),
        "Five seeds near the limit of 2.78": np.array([_study(1.3, each, 5) for each in (2.5, 2.7, 2.85, 3.1, 2.74)]),
        "Seven studies of four seeds": draw.normal(0.5, 0.4, (7, 4)),
    }


def verify_noticed(answer):
    answer = untouched(answer)
    for what, differences in _cases().items():
        expect_close(answer(differences), noticed(differences), what + _count_mistake(answer, differences))
    nothing = np.array([[0.0, 0.0, 0.0, 0.0], [0.4, 0.5, 0.6, 0.5]])
    with np.errstate(all="ignore"):
        found = answer(nothing)
    expect_close(found, 50.0, "Two studies, of which one has only zeros, so that its interval, 0 to 0, contains 0")
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
