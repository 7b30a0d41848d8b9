"""Answers to the exercises of lesson 02: wrong ones that must be rejected, right ones written differently."""

import math

import numpy as np

from labkit.lesson.exercises.l02_measuring_honestly import calls_needed, is_real


def ignore_the_queue(work, now, synchronize):
    for _ in range(10):
        work()
    synchronize()
    seconds = []
    for _ in range(50):
        begin = now()
        work()
        seconds.append(now() - begin)
    return float(np.median(seconds))


def skip_the_warm_up(work, now, synchronize):
    seconds = []
    for _ in range(5):
        begin = now()
        work()
        synchronize()
        seconds.append(now() - begin)
    return float(np.median(seconds))


def take_the_mean(work, now, synchronize):
    for _ in range(10):
        work()
    synchronize()
    begin = now()
    for _ in range(50):
        work()
    synchronize()
    return (now() - begin) / 50


def time_once(work, now, synchronize):
    work()
    synchronize()
    begin = now()
    work()
    synchronize()
    return now() - begin


def after_a_warm_up(calls, timed, summary):
    """An answer that warms up and waits as it should, but times too few calls, or makes the wrong number of them."""

    def answer(work, now, synchronize):
        for _ in range(calls):
            work()
        synchronize()
        seconds = []
        for _ in range(timed):
            begin = now()
            work()
            synchronize()
            seconds.append(now() - begin)
        return float(summary(seconds))

    return answer


def start_before_the_warm_up_is_done(work, now, synchronize):
    for _ in range(10):
        work()
    begin = now()  # the queue still holds ten calls
    work()
    synchronize()
    return now() - begin


def compare_medians(ratios, null_ratios):
    middle = np.median(ratios)
    return "faster" if middle > 1 else "slower" if middle < 1 else "not distinguishable"


def compare_means(ratios, null_ratios):
    middle, floor = np.mean(ratios), abs(np.mean(null_ratios) - 1)
    return "faster" if middle > 1 + floor else "slower" if middle < 1 - floor else "not distinguishable"


def ask_for_a_tenth(ratios, null_ratios):
    middle = np.median(ratios)
    return "faster" if middle > 1.15 else "slower" if middle < 0.85 else "not distinguishable"


def want_every_pair(ratios, null_ratios):
    return "faster" if min(ratios) > 1 else "slower" if max(ratios) < 1 else "not distinguishable"


def by_the_middle(ratios, null_ratios):
    """The middle must lie outside the band, and the interval only beside 1."""

    def interval(values):
        ordered, rank = np.sort(values), max(1, round(len(values) / 2 - len(values) ** 0.5))
        return ordered[rank - 1], ordered[-rank]

    (low, high), floor = interval(ratios), max(abs(end - 1) for end in interval(null_ratios))
    middle = (low + high) / 2
    if middle > 1 + floor and low > 1:
        return "faster"
    return "slower" if middle < 1 / (1 + floor) and high < 1 else "not distinguishable"


def turn_it_around(ratios, null_ratios):
    return {"faster": "slower", "slower": "faster"}.get(is_real(ratios, null_ratios), "not distinguishable")


def middle_of_a_sorted_list(work, now, synchronize):
    for _ in range(20):
        work()
        synchronize()
    seconds = []
    while len(seconds) < 101:
        synchronize()
        begin = now()
        work()
        synchronize()
        seconds.append(now() - begin)
    return sorted(seconds)[50]


def mean_without_the_ends(work, now, synchronize):
    for _ in range(8):
        work()
    synchronize()
    seconds = []
    for _ in range(200):
        begin = now()
        work()
        synchronize()
        seconds.append(now() - begin)
    return float(np.mean(sorted(seconds)[40:120]))


def by_a_bootstrap(ratios, null_ratios):
    random = np.random.default_rng(0)

    def interval(values):
        draws = random.choice(values, (1000, len(values)))
        return np.percentile(np.median(draws, axis=1), [2.5, 97.5])

    (low, high), null = interval(ratios), interval(null_ratios)
    floor = max(abs(null[0] - 1), abs(null[1] - 1))
    return "faster" if low > 1 + floor else "slower" if high < 1 / (1 + floor) else "not distinguishable"


def on_a_log_scale(ratios, null_ratios):
    random = np.random.default_rng(7)

    def interval(values):
        draws = np.median(random.choice(np.log(values), (800, len(values))), axis=1)
        return np.exp(np.quantile(draws, (0.025, 0.975)))

    low, high = interval(ratios)
    floor = np.abs(interval(null_ratios) - 1).max()
    if low - 1 > floor:
        return "faster"
    return "slower" if 1 / high - 1 > floor else "not distinguishable"


def multiply_its_input(ratios, null_ratios):
    word = is_real(ratios, null_ratios)
    ratios *= 2
    return word


def one_is_enough(q, sure=0.99):
    return int(np.ceil(np.log(1 - sure) / np.log(q)))


def exactly_two_are_rare(q, sure=0.99):
    n = 2
    while n * (n - 1) / 2 * (1 - q) ** 2 * q ** (n - 2) > 1 - sure or n < 2 / (1 - q):
        n += 1
    return n


def never_heard_of_sure(q, sure=0.99):
    return calls_needed(q)


def twice_the_rarity(q, sure=0.99):
    return round(2 / (1 - q))


def by_a_bell_curve(q, sure=0.99):
    from scipy.special import ndtri

    n = 2
    while (n * (1 - q) - 1.5) / np.sqrt(n * q * (1 - q)) < ndtri(sure):
        n += 1
    return n


def by_the_binomial(q, sure=0.99):
    from scipy.special import bdtr

    counts = np.arange(2, 20_000)
    return counts[np.argmax(bdtr(1, counts, 1 - q) <= 1 - sure)]


def by_halving(q, sure=0.99):
    def certainty(n):
        return 1 - q ** (n - 1) * (q + n * (1 - q))

    low, high = 1, 2
    while certainty(high) < sure:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if certainty(middle) >= sure else (middle, high)
    return high


class AnyWord(str):
    """Equal to every text."""

    def __eq__(self, other):
        return True

    __hash__ = str.__hash__


WRONG = {
    "time-one-call": {
        "does not wait for the queue": ignore_the_queue,
        "does not warm up": skip_the_warm_up,
        "takes the mean": take_the_mean,
        "times once": time_once,
        **{f"times once after {calls} calls": after_a_warm_up(calls, 1, np.mean) for calls in (10, 20, 50, 100)},
        **{f"takes the mean of {timed}": after_a_warm_up(20, timed, np.mean) for timed in (2, 3, 5, 20)},
        "takes the median of three": after_a_warm_up(20, 3, np.median),
        "takes the quickest of many": after_a_warm_up(20, 50, np.min),
        "takes the quickest of ten": after_a_warm_up(20, 10, np.min),
        "starts while the queue is full": start_before_the_warm_up_is_done,
    },
    "is-real": {
        "believes any median above 1": compare_medians,
        "takes means, which one spike moves": compare_means,
        "asks for a fixed amount": ask_for_a_tenth,
        "wants every single pair to agree": want_every_pair,
        "looks where the middle of the interval lies": by_the_middle,
        "turns the ratio around": turn_it_around,
        "says what equals any word": lambda ratios, null_ratios: AnyWord("faster"),
        "multiplies its input": multiply_its_input,
    },
    "calls-needed": {
        "asks for one call above the quantile, not two": one_is_enough,
        "asks how rare exactly two are": exactly_two_are_rare,
        "does not look at `sure`": never_heard_of_sure,
        "twice one over the share": twice_the_rarity,
        "takes a bell curve for the binomial": by_a_bell_curve,
        "is one call short": lambda q, sure=0.99: calls_needed(q, sure) - 1,
        "knows p95 and p99 by heart": lambda q, sure=0.99: {0.95: 130, 0.99: 662}.get(q, 11),
    },
}


def judged(floor_of, slower=lambda floor: 1 / (1 + floor), interval=None):
    """An answer with another floor, another band, or another interval of the ratios."""

    def middle(values):
        rank = max(1, round(len(values) / 2 - len(values) ** 0.5))
        return np.sort(values)[[rank - 1, -rank]]

    def answer(ratios, null_ratios):
        low, high = (interval or middle)(ratios)
        floor = floor_of(middle(null_ratios), null_ratios)
        return "faster" if low > 1 + floor else "slower" if high < slower(floor) else "not distinguishable"

    return answer


def both_ends(ends, null):
    return np.abs(ends - 1).max()


def quartiles(ratios, null_ratios):
    """The range of the middle half of the pairs, which more pairs do not narrow."""
    low, high = np.quantile(ratios, (0.25, 0.75))
    null = np.quantile(null_ratios, (0.25, 0.75))
    factor = max(null[1], 1 / null[0])
    return "faster" if low > factor else "slower" if high < 1 / factor else "not distinguishable"


def ranks_of_the_ratios(ratios, null_ratios):
    rank = max(1, round(len(ratios) / 2 - len(ratios) ** 0.5))
    (low, high), null = (np.sort(each)[[rank - 1, -rank]] for each in (ratios, null_ratios))
    floor = np.abs(null - 1).max()
    return "faster" if low > 1 + floor else "slower" if high < 1 / (1 + floor) else "not distinguishable"


WRONG["is-real"] |= {
    "the middle half of the pairs": quartiles,
    "without a floor": judged(lambda ends, null: 0),
    "a floor of 5 %": judged(lambda ends, null: 0.05),
    "the null run's median as the floor": judged(lambda ends, null: abs(np.median(null) - 1)),
    "the null run's upper end only": judged(lambda ends, null: ends[1] - 1),
    "the null run's lower end only": judged(lambda ends, null: 1 - ends[0]),
    "a band of 1 - floor": judged(both_ends, slower=lambda floor: 1 - floor),
    "the median of the ratios": judged(both_ends, interval=lambda values: [np.median(values)] * 2),
    "the null run at the ranks of the ratios": ranks_of_the_ratios,
}
WRONG["calls-needed"] |= {
    "at most a thousand": lambda q, sure=0.99: min(1000, calls_needed(q, sure)),
    "at least ten": lambda q, sure=0.99: max(10, calls_needed(q, sure)),
    "nothing beyond ten thousand": lambda q, sure=0.99: found if (found := calls_needed(q, sure)) < 10_000 else None,
    "at least as many as two lie above on average": lambda q, sure=0.99: max(
        math.ceil(2 / (1 - q)), calls_needed(q, sure)
    ),
}

RIGHT = {
    "time-one-call": {
        "the middle of a sorted list": middle_of_a_sorted_list,
        "the mean of the middle half": mean_without_the_ends,
    },
    "is-real": {
        "by a bootstrap": by_a_bootstrap,
        "by a bootstrap of the logarithms": on_a_log_scale,
    },
    "calls-needed": {"by the binomial distribution": by_the_binomial, "by halving": by_halving},
}
