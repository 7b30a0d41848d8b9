"""Exercises of the lesson on comparing trainings: intervals of few trainings, a verdict, looks,
fresh seeds, pairs.
"""

import math

import numpy as np
from scipy.special import nctdtr, stdtrit

from labkit.lesson.exercises import Exercise, Wrong, expect, expect_close, shorten, untouched


def contains(studies, truth, factor, spread=None):
    if spread is None:
        spread = studies.std(axis=1, ddof=1)
    reach = factor * spread / np.sqrt(studies.shape[1])
    return np.abs(studies.mean(axis=1) - truth) <= reach


# spreads 0.5, 0.346, 0.5
BY_HAND = np.array([[0.9, 1.4, 0.4], [1.0, 1.0, 1.6], [-0.9, -1.4, -0.4]])


def verify_contains(answer):
    answer = untouched(answer)
    _says(
        answer(BY_HAND.copy(), 0, 4.303),
        [True, False, True],
        "means 0.9, 1.2 and -0.9, truth 0, factor 4.303",
    )
    _says(
        answer(BY_HAND.copy(), 0, 1.96),
        [False, False, False],
        "the same three studies, factor 1.96",
    )
    _says(
        answer(BY_HAND.copy(), 0.4, 1.96),
        [True, False, False],
        "the same, truth 0.4: below the mean, or above it",
    )
    _says(
        answer(BY_HAND.copy(), 0.0, 1.96, 0.9),
        [True, False, True],
        "spread=0.9 for all, in place of their own",
    )
    rng = np.random.default_rng(3)
    for count in (3, 5, 20):
        drawn = rng.normal(81, 0.3, (2000, count))
        case = f"2,000 studies of {count} trainings"
        _as_often(answer(drawn, 81, 1.96), contains(drawn, 81, 1.96), case)
        _as_often(
            answer(drawn, 81, 1.96, 0.3), contains(drawn, 81, 1.96, 0.3), f"{case}, spread=0.3"
        )
        _as_often(
            answer(drawn, 80.9, 2.5),
            contains(drawn, 80.9, 2.5),
            f"{case}, another truth and factor",
        )


def _says(found, expected, case):
    """Raise `Wrong` unless `found` is an array of these booleans."""
    try:
        array = np.asarray(found)
    except ValueError:
        raise Wrong(f"{case}: expected a NumPy array, found {shorten(found)}.") from None
    told = f"{case}: expected one True or False for each study, found {shorten(found)}."
    expect(array.shape == np.shape(expected) and array.dtype == bool, told)
    expect(
        array.tolist() == list(expected), f"{case}: expected {expected}, found {array.tolist()}."
    )


def _as_often(found, expected, case):
    """Raise `Wrong` unless `found` says the same of each study; the message compares how often."""
    found = np.asarray(found)
    told = f"{case}: expected one True or False for each study, found {shorten(found)}."
    expect(found.shape == expected.shape and found.dtype == bool, told)
    shares = (
        f"{100 * expected.mean():.1f} % should contain the truth, with yours "
        f"{100 * found.mean():.1f} % do"
    )
    expect(
        (found != expected).mean() < 2e-3,
        f"{case}: {shares}. The reach is factor * spread / √n, and a study's own "
        "spread has ddof=1.",
    )


def paired_verdict(one, other):
    leads = np.asarray(one) - np.asarray(other)
    n = len(leads)
    if n < 2:
        return "cannot tell"
    reach = stdtrit(n - 1, 0.975) * leads.std(ddof=1) / math.sqrt(n)
    if leads.mean() > reach:
        return "better"
    if leads.mean() < -reach:
        return "worse"
    return "cannot tell"


# {case: (one, other, verdict)}; reaches worked by hand with t = 12.7, 4.30, 2.78 for 2, 3 and 5
# pairs
VERDICTS = {
    "leads of 0.9, 1.4 and 0.4, which reach 1.24": (
        [81.9, 82.4, 81.4],
        [81, 81, 81],
        "cannot tell",
    ),
    "leads of 0.9, 1.1 and 0.7, which reach 0.50": ([81.9, 82.1, 81.7], [81, 81, 81], "better"),
    "the same, the other way round": ([81, 81, 81], [81.9, 82.1, 81.7], "worse"),
    "pairs that go up and down together: the leads are 0.5, 0.6, 0.4": (
        [80.5, 82.6, 84.4],
        [80, 82, 84],
        "better",
    ),
    "two pairs, 2.0 and 2.67, which reach 4.26": ([46.32, 46.51], [44.32, 43.84], "cannot tell"),
    "two pairs, 1.0 and 1.1, which reach 0.64": ([81.0, 81.1], [80, 80], "better"),
    "five pairs just inside, 2.75 standard errors from 0": (
        [1.0, 0.0, 0.57, 0.2, 0.63],
        [0] * 5,
        "cannot tell",
    ),
    "five leads of 0.3 to 1.0, mean 0.68, which reach 0.36": (
        [1.0, 0.5, 0.7, 0.3, 0.9],
        [0] * 5,
        "better",
    ),
    "one pair, which has no spread": ([82.0], [80.0], "cannot tell"),
    "no difference in any pair": ([80.0, 81.0, 82.0], [80.0, 81.0, 82.0], "cannot tell"),
}


def verify_verdict(answer):
    answer = untouched(answer)
    for case, (one, other, expected) in VERDICTS.items():
        for kind in (np.array, list):
            with np.errstate(all="ignore"):
                found = answer(kind(one), kind(other))
            expect(isinstance(found, str), f"{case}: expected a text, found {shorten(found)}.")
            expect(found == expected, f"{case}: expected {expected!r}, found {found!r}.")


def ever_named(leads, named, first=3):
    ever = np.zeros(len(leads), dtype=bool)
    for pairs in range(first, leads.shape[1] + 1):
        ever |= named(leads[:, :pairs])
    return 100 * ever.mean()


def verify_ever_named(answer):
    looks = []

    def large(leads):  # names a winner where the newest lead is large
        looks.append(leads.shape)
        return leads[:, -1] > 2

    leads = np.array(
        [[9, 9, 0, 0, 0], [0, 0, 9, 0, 0], [0, 0, 0, 9, 9], [0, 0, 0, 0, 9], [0, 0, 0, 0, 0]],
        dtype=float,
    )
    expect_close(
        untouched(answer)(leads, large),
        60.0,
        "Five studies, of which three once look like a winner",
    )
    expect(
        sorted(set(looks)) == [(5, 3), (5, 4), (5, 5)],
        "A look at 3, at 4 and at all 5 pairs, of all studies: (5, 3), (5, 4), (5, 5). Looked at "
        f"were {looks[:8]}.",
    )
    expect_close(answer(leads, large, first=4), 40.0, "The same, first=4")
    expect_close(answer(leads, large, 1), 80.0, "The same, first=1")
    no_winner = np.random.default_rng(1).normal(size=(2000, 40))
    found, expected = answer(no_winner, _named), ever_named(no_winner, _named)
    expect_close(
        found, expected, "2,000 studies of 40 pairs without a difference, judged by Student's t"
    )


def _named(leads):
    """True for each study whose interval by Student's t leaves 0 out."""
    n = leads.shape[1]
    return np.abs(leads.mean(axis=1)) > stdtrit(n - 1, 0.975) * leads.std(axis=1, ddof=1) / np.sqrt(
        n
    )


def report(leads):
    half = leads.shape[1] // 2
    best = int(leads[:, :half].mean(axis=1).argmax())
    return best, leads[best, half:]


def verify_report(answer):
    answer = untouched(answer)
    leads = np.array([[1.0, 1.2, 0.1, 0.3], [0.2, 0.4, 3.0, 3.0], [0.9, 0.9, 0.8, 0.8]])
    _reports(answer(leads), 0, [0.1, 0.3], "Four seeds: the first method is best on seeds 1 and 2")
    _reports(answer(-leads), 1, [-3.0, -3.0], "All leads with the other sign")
    _reports(answer(leads[:, ::-1]), 1, [0.4, 0.2], "The seeds in the other order")
    many = np.random.default_rng(2).normal(size=(5, 12))
    best, fresh = report(many)
    _reports(answer(many), best, fresh, "Five methods of twelve seeds")


def _reports(found, best, fresh, case):
    """Raise `Wrong` unless `found` is the number of the method and its leads on the fresh seeds."""
    try:
        number, leads = found
        number, leads = int(number), np.asarray(leads, dtype=float)
    except (TypeError, ValueError):
        raise Wrong(
            f"{case}: expected the best method's number and its leads, found {shorten(found)}."
        ) from None
    told = f"{case}: chosen on the first half, it is method {best}; found method {number}."
    expect(number == best, told)
    told = (
        f"{case}: its leads on the other half are {np.round(fresh, 2)}, found {np.round(leads, 2)}."
    )
    expect(leads.shape == np.shape(fresh) and np.allclose(leads, fresh), told)


def pairs_for(lead, spread, named, wanted=80):
    rng = np.random.default_rng(0)
    pairs = 2
    while 100 * named(rng.normal(lead, spread, (4000, pairs))).mean() < wanted:
        pairs += 1
    return pairs


MARGIN = 3.0  # points of power by which 4,000 drawn studies may err: four standard errors


def verify_pairs_for(answer):
    for lead, spread, wanted in (
        *((1.0, 1.0, 80), (0.4, 0.2, 80), (3.0, 0.7, 80), (-0.5, 0.5, 80), (0.5, 1.0, 80)),
        *((0.9, 1.3, 50), (0.9, 1.3, 95)),
    ):
        found = (
            answer(lead, spread, _named) if wanted == 80 else answer(lead, spread, _named, wanted)
        )
        case = f"A lead of {lead:g}, a spread of {spread:g}, wanted {wanted} %"
        expect(
            np.ndim(found) == 0 and found == int(found),
            f"{case}: a whole number of pairs, found {shorten(found)}.",
        )
        _enough(int(found), abs(lead) / spread, wanted, case)
    never_shy = answer(1.0, 1.0, lambda leads: np.ones(len(leads), dtype=bool))
    expect_close(
        never_shy, 2, "A judge who always names a winner: the fewest pairs that are allowed"
    )
    at_twelve = answer(0.01, 1.0, lambda leads: np.full(len(leads), leads.shape[1] >= 12))
    expect_close(at_twelve, 12, "A judge who names a winner from 12 pairs on, whatever they say")


def _power(pairs, lead):
    """Percent of studies that name the winner, by the noncentral t distribution; lead in
    spreads.
    """
    t = stdtrit(pairs - 1, 0.975)
    return 100 * (1 - nctdtr(pairs - 1, lead * math.sqrt(pairs), t))


def _enough(pairs, lead, wanted, case):
    """Raise `Wrong` unless so many pairs are enough, and one less is not."""
    expect(pairs >= 2, f"{case}: {pairs} pairs have no spread; begin with two.")
    power = _power(pairs, lead)
    expect(
        power >= wanted - MARGIN,
        f"{case}: with {pairs} pairs only {power:.0f} % of the studies name the winner.",
    )
    fewer = _power(pairs - 1, lead) if pairs > 2 else 0
    expect(
        fewer < wanted + MARGIN,
        f"{case}: {pairs} pairs are too many, {fewer:.0f} % name it with one pair less.",
    )


EXERCISES = (
    Exercise(
        id="contains",
        task="Write whether each study's interval contains the truth.",
        difficulty=2,
        importance=3,
        minutes=9,
        hint="The interval contains the truth where the mean lies no further from it than the "
        "interval reaches to one "
        "side. All studies at once: mean and standard deviation along axis 1.",
        reference=contains,
        verify=verify_contains,
        imports="import numpy as np",
    ),
    Exercise(
        id="paired-verdict",
        task="Write the verdict on two methods that were trained with the same seeds.",
        difficulty=2,
        importance=3,
        minutes=8,
        hint="One array of differences, seed by seed; everything else is computed from it. One "
        "pair has no standard "
        "deviation, and a comparison with NaN is False: ask for the number of pairs first.",
        reference=paired_verdict,
        verify=verify_verdict,
        imports="import math\n\nimport numpy as np\nfrom scipy.special import stdtrit",
    ),
    Exercise(
        id="ever-named",
        task="Write the share of studies that name a winner at one of their looks.",
        difficulty=2,
        minutes=9,
        hint="Keep one True or False per study. Look at the first 3 columns, the first 4, and so "
        "on; `|` joins what "
        "one look says with what earlier ones said.",
        reference=ever_named,
        verify=verify_ever_named,
        imports="import numpy as np",
    ),
    Exercise(
        id="report",
        task="Mend a report that chooses the best method and judges it on the same seeds.",
        difficulty=1,
        minutes=5,
        hint="The mean that chooses may see the first half of the columns only; what is returned, "
        "the other half only.",
        reference=report,
        verify=verify_report,
    ),
    Exercise(
        id="pairs-for",
        task="Write how many pairs a study needs, by drawing studies.",
        difficulty=2,
        importance=3,
        minutes=9,
        hint="Begin with two pairs. Draw 4,000 studies of that size around the lead, let `named` "
        "judge them, and take "
        "one pair more until enough of them name a winner.",
        reference=pairs_for,
        verify=verify_pairs_for,
        imports="import numpy as np",
    ),
)
