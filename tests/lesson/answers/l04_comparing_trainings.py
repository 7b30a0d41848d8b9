"""Answers on comparing trainings: wrong ones that differ by one property, right ones written
differently.
"""

import math
import statistics

import numpy as np
from scipy import stats
from scipy.special import nctdtr, ndtr, stdtrit


def interval_check(
    *, ddof=1, root=math.sqrt, axis=1, use_spread=True, use_factor=True, side=np.abs, outside=False
):
    """`contains` with one part of it changed."""

    def contains(studies, truth, factor, spread=None):
        if spread is None or not use_spread:
            spread = studies.std(axis=axis, ddof=ddof)
        reach = (factor if use_factor else 1.96) * spread / root(studies.shape[1])
        inside = side(studies.mean(axis=axis) - truth) <= reach
        return ~inside if outside else inside

    return contains


def around_zero(studies, truth, factor, spread=None):
    return interval_check()(studies, 0.0 * truth, factor, spread)


def by_the_spread_of_all(studies, truth, factor, spread=None):
    return interval_check()(
        studies, truth, factor, studies.std(ddof=1) if spread is None else spread
    )


def in_percent(studies, truth, factor, spread=None):
    return 100 * interval_check()(studies, truth, factor, spread).mean()


def in_place(studies, truth, factor, spread=None):
    studies -= truth
    return interval_check()(studies, 0, factor, spread)


def by_ends(studies, truth, factor, spread=None):
    answers = []
    for study in studies:
        s = statistics.stdev(study) if spread is None else spread
        error = s / math.sqrt(len(study))
        middle = statistics.fmean(study)
        answers.append(middle - factor * error <= truth <= middle + factor * error)
    return np.array(answers)


def by_t_values(studies, truth, factor, spread=None):
    variance = studies.var(1, ddof=1) if spread is None else spread**2
    return (studies.mean(1) - truth) ** 2 / (variance / studies.shape[1]) <= factor**2


def verdict_with(
    *, factor=None, ddof=1, more=0, level=0.975, root=math.sqrt, pairs=True, one_pair="cannot tell"
):
    """`verdict` with one part of it changed."""

    def verdict(one, other):
        one, other = np.array(one), np.array(other)
        n = len(one)
        if n < 2:
            return one_pair
        spread = (
            (one - other).std(ddof=ddof)
            if pairs
            else math.hypot(one.std(ddof=1), other.std(ddof=1))
        )
        t = factor or stdtrit(n - 1 + more, level)
        reach = t * spread / root(n)
        lead = (one - other).mean()
        return "better" if lead > reach else "worse" if lead < -reach else "cannot tell"

    return verdict


def the_higher_mean(one, other):
    lead = np.mean(one) - np.mean(other)
    return "better" if lead > 0 else "worse" if lead < 0 else "cannot tell"


def the_same_sign(one, other):
    leads = np.subtract(one, other)
    if len(leads) < 2:
        return "cannot tell"
    return "better" if (leads > 0).all() else "worse" if (leads < 0).all() else "cannot tell"


def never_worse(one, other):
    said = verdict_with()(one, other)
    return "cannot tell" if said == "worse" else said


def the_other_way_round(one, other):
    return verdict_with()(other, one)


def a_boolean(one, other):
    return verdict_with()(one, other) == "better"


def by_scipy(one, other):
    if len(one) == 1:
        return "cannot tell"
    low, high = stats.ttest_rel(one, other).confidence_interval()
    return {(True, False): "better", (False, True): "worse"}.get(
        (bool(low > 0), bool(high < 0)), "cannot tell"
    )


def by_plain_sums(one, other):
    leads = [a - b for a, b in zip(one, other, strict=True)]
    count = len(leads)
    if count == 1:
        return "cannot tell"
    mean = sum(leads) / count
    error = math.sqrt(sum((lead - mean) ** 2 for lead in leads) / (count - 1) / count)
    reach = stats.t.ppf(0.975, count - 1) * error
    low, high = mean - reach, mean + reach
    if low > 0:
        return "better"
    return "worse" if high < 0 else "cannot tell"


def looks(*, start=0, stop=1, step=1, percent=100, join=np.logical_or.reduce, columns=None):
    """`ever_named` with one part of it changed."""

    def ever_named(leads, named, first=3):
        sizes = range(first + start, leads.shape[1] + stop, step)
        said = [named(columns(leads, size) if columns else leads[:, :size]) for size in sizes]
        return percent * np.mean(join(said))

    return ever_named


def one_look_at_the_end(leads, named, first=3):
    return 100 * named(leads).mean()


def the_sum_of_all_looks(leads, named, first=3):
    return 100 * sum(named(leads[:, :size]).mean() for size in range(first, leads.shape[1] + 1))


def always_from_the_third(leads, named, first=3):
    return looks()(leads, named, 3)


def study_by_study(leads, named, first=3):
    """Each study by itself, which stops as soon as it has a winner."""
    stopped = 0
    for study in leads:
        for size in range(first, len(study) + 1):
            if named(study[None, :size])[0]:
                stopped += 1
                break
    return 100 * stopped / len(leads)


def with_a_maximum(leads, named, first=3):
    said = np.stack(
        [named(leads[:, : size + 1]) for size in range(first - 1, leads.shape[1])], axis=1
    )
    return float(said.max(axis=1).sum() * 100 / len(leads))


def by_a_set(leads, named, first=3):
    winners = set()
    for size in range(first, leads.shape[1] + 1):
        winners |= set(np.flatnonzero(named(leads[:, :size])))
    return 100 * len(winners) / len(leads)


def chosen_by(leads, choosing, reporting, pick=np.argmax):
    best = int(pick(leads[:, choosing].mean(axis=1)))
    return best, leads[best, reporting]


def halves(leads):
    half = leads.shape[1] // 2
    return slice(None, half), slice(half, None), slice(None)


def report_by_loop(leads):
    half = leads.shape[1] // 2
    best = max(range(len(leads)), key=lambda method: sum(leads[method][:half]))
    return best, list(leads[best][half:])


def report_by_split(leads):
    first, second = np.split(leads, 2, axis=1)
    best = np.argmax(first.sum(axis=1))
    return np.array(best), second[best]


def size_for(lead, spread, named, wanted=80, *, first=2, draws=4000, add=0, enough=None):
    """`pairs_for` with one part of it changed."""
    rng = np.random.default_rng(1)
    pairs = first
    while pairs < 500:
        share = 100 * named(rng.normal(lead, spread, (draws, pairs))).mean()
        if (enough or (lambda share: share >= wanted))(share):
            break
        pairs += 1
    return pairs + add


def by_the_bell(lead, spread, named, wanted=80):
    pairs = 2
    while 100 * ndtr(abs(lead) / spread * math.sqrt(pairs) - 1.96) < wanted:
        pairs += 1
    return pairs


def with_the_error_of_the_mean(lead, spread, named, wanted=80):
    """Draws means in place of leads."""
    rng = np.random.default_rng(1)
    pairs = 2
    while (
        100 * named(rng.normal(lead, spread / math.sqrt(pairs), (4000, pairs))).mean() < wanted
        and pairs < 500
    ):
        pairs += 1
    return pairs


def studies_and_pairs_exchanged(lead, spread, named, wanted=80):
    rng = np.random.default_rng(1)
    pairs = 2
    while 100 * named(rng.normal(lead, spread, (pairs, 4000))).mean() < wanted and pairs < 500:
        pairs += 1
    return pairs


def by_theory(lead, spread, named, wanted=80):
    """The noncentral t distribution in place of draws: right for Student's t, and deaf to
    another judge.
    """
    pairs = 2
    while (
        100 * (1 - nctdtr(pairs - 1, abs(lead) / spread * pairs**0.5, stdtrit(pairs - 1, 0.975)))
        < wanted
    ):
        pairs += 1
    return pairs


def one_draw_for_all(lead, spread, named, wanted=80):
    luck = np.random.default_rng(7).standard_normal((6000, 200))
    sizes = (
        size
        for size in range(2, 201)
        if named(lead + spread * luck[:, :size]).mean() * 100 >= wanted
    )
    return next(sizes)


def by_recursion(lead, spread, named, wanted=80, pairs=2):
    drawn = np.random.default_rng(pairs).normal(size=(4000, pairs)) * spread + lead
    if np.count_nonzero(named(drawn)) >= wanted * 40:
        return pairs
    return by_recursion(lead, spread, named, wanted, pairs + 1)


WRONG = {
    "contains": {
        "ddof 0": interval_check(ddof=0),
        "no root of n": interval_check(root=lambda n: 1),
        "n in place of its root": interval_check(root=float),
        "root of n - 1": interval_check(root=lambda n: math.sqrt(n - 1)),
        "the spread is ignored": interval_check(use_spread=False),
        "1.96, whatever the factor": interval_check(use_factor=False),
        "one side of the truth": interval_check(side=lambda distance: distance),
        "those that do not contain it": interval_check(outside=True),
        "the truth is always 0": around_zero,
        "one spread of all studies": by_the_spread_of_all,
        "a percentage": in_percent,
        "in place": in_place,
    },
    "paired-verdict": {
        "1.96": verdict_with(factor=1.96),
        "ddof 0": verdict_with(ddof=0),
        "freedom of n": verdict_with(more=1),
        "5 % on each side": verdict_with(level=0.95),
        "no root of n": verdict_with(root=lambda n: 1),
        "without pairs": verdict_with(pairs=False),
        "one pair decides": verdict_with(one_pair="better"),
        "the higher mean": the_higher_mean,
        "the same sign": the_same_sign,
        "never worse": never_worse,
        "the other way round": the_other_way_round,
        "a boolean": a_boolean,
    },
    "ever-named": {
        "the last look is missing": looks(stop=0),
        "the first look is missing": looks(start=1),
        "one look too early": looks(start=-1),
        "every second look": looks(step=2),
        "a share": looks(percent=1),
        "at all looks": looks(join=np.logical_and.reduce),
        "the newest leads only": looks(columns=lambda leads, size: leads[:, size - 3 : size]),
        "all leads at each look": looks(columns=lambda leads, size: leads),
        "one look at the end": one_look_at_the_end,
        "the sum of all looks": the_sum_of_all_looks,
        "always from the third": always_from_the_third,
    },
    "report": {
        "the same seeds do both": lambda leads: chosen_by(
            leads, halves(leads)[2], halves(leads)[2]
        ),
        "all seeds choose": lambda leads: chosen_by(leads, halves(leads)[2], halves(leads)[1]),
        "all seeds report": lambda leads: chosen_by(leads, halves(leads)[0], halves(leads)[2]),
        "the second half chooses": lambda leads: chosen_by(
            leads, halves(leads)[1], halves(leads)[0]
        ),
        "the first half does both": lambda leads: chosen_by(
            leads, halves(leads)[0], halves(leads)[0]
        ),
        "the worst": lambda leads: chosen_by(leads, *halves(leads)[:2], np.argmin),
        "the largest size of a lead": lambda leads: chosen_by(
            leads, *halves(leads)[:2], lambda m: np.abs(m).argmax()
        ),
        "the mean alone": lambda leads: chosen_by(leads, *halves(leads)[:2])[1].mean(),
        "of all methods": lambda leads: (
            chosen_by(leads, *halves(leads)[:2])[0],
            leads[:, halves(leads)[1]],
        ),
    },
    "pairs-for": {
        "the rule of 2.8": lambda lead, spread, named, wanted=80: max(
            2, math.ceil((2.8 * spread / lead) ** 2)
        ),
        "by the bell curve": by_the_bell,
        "always 80 %": lambda lead, spread, named, wanted=80: size_for(lead, spread, named),
        "one too few": lambda *given: size_for(*given, add=-1),
        "two too many": lambda *given: size_for(*given, add=2),
        "twice as many": lambda *given: 2 * size_for(*given),
        "three at least": lambda *given: size_for(*given, first=3),
        "one at least": lambda lead, spread, named, wanted=80: (
            size_for(lead, spread, named, wanted, add=-1) or 1
        ),
        "spread 1, whatever it is": lambda lead, spread, named, wanted=80: size_for(
            lead, 1.0, named, wanted
        ),
        "where half of them do": lambda lead, spread, named, wanted=80: size_for(
            lead, spread, named, 50
        ),
        "means in place of leads": with_the_error_of_the_mean,
        "studies and pairs exchanged": studies_and_pairs_exchanged,
        "deaf to the judge": by_theory,
        "the power": lambda lead, spread, named, wanted=80: wanted,
    },
}
RIGHT = {
    "contains": {"by the ends": by_ends, "by t values": by_t_values},
    "paired-verdict": {"by scipy": by_scipy, "by plain sums": by_plain_sums},
    "ever-named": {"with a maximum": with_a_maximum, "by a set": by_a_set},
    "report": {"by a loop": report_by_loop, "by a split": report_by_split},
    "pairs-for": {"one draw for all": one_draw_for_all, "by recursion": by_recursion},
}
