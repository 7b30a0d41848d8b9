"""Answers to the exercises of lesson 02: wrong ones that must be rejected, right ones written
differently.
"""

import random
import time

import numpy as np
import torch

from labkit.lesson.exercises.l02_measuring_honestly import (
    compare,
    compare_series,
    is_real,
    null_arm,
    same_answers,
)


def compared(**changes):
    """`compare` with one or more of its properties changed."""

    def answer(calls, wait, rounds=40, now=time.perf_counter):
        has = {
            "warm": 5,
            "before": True,
            "after": True,
            "order": "drawn",
            "calls": 1,
            "scale": 1,
            "own": True,
        }
        has |= changes
        now = now if has["own"] else time.perf_counter
        for call in has["warm"] * list(calls):
            call()
        seconds = np.empty((rounds, len(calls)))
        once = random.sample(range(len(calls)), len(calls))
        for number in range(rounds):
            order = random.sample(range(len(calls)), len(calls))
            if has["order"] != "drawn":
                order = {"fixed": range(len(calls)), "once": once, "columns": order}[has["order"]]
            for column, place in enumerate(order):
                if has["before"]:
                    wait()
                begin = now()
                for _ in range(has["calls"]):
                    calls[place]()
                if has["after"]:
                    wait()
                seconds[number, column if has["order"] == "columns" else place] = now() - begin
        return has["scale"] * seconds

    return answer


def compared_apart(calls, wait, rounds=40, now=time.perf_counter):
    columns = [compare([call], wait, rounds, now)[:, 0] for call in calls]
    return np.column_stack(columns)


def warm_up_counted_in(calls, wait, rounds=40, now=time.perf_counter):
    return compared(warm=0)(calls, wait, rounds + 5, now)


def warm_up_in_the_first_rounds(calls, wait, rounds=40, now=time.perf_counter):
    """Times eight rounds more and drops the first eight."""
    return compared(warm=0)(calls, wait, rounds + 8, now)[8:]


def clock_read_once_a_round(calls, wait, rounds=40, now=time.perf_counter):
    compared()(calls, wait, 1, now)
    seconds = np.empty((rounds, len(calls)))
    for number in range(rounds):
        begin = now()
        for place in random.sample(range(len(calls)), len(calls)):
            calls[place]()
            wait()
            seconds[number, place] = now() - begin
    return seconds


def in_a_shuffled_list(calls, wait, rounds=40, now=time.perf_counter):
    for call in calls:
        for _ in range(10):
            call()
            wait()
    table = []
    for _ in range(rounds):
        row = {}
        turns = list(enumerate(calls))
        random.shuffle(turns)
        for column, call in turns:
            wait()
            start = now()
            call()
            wait()
            row[column] = now() - start
        table.append([row[column] for column in sorted(row)])
    return np.array(table)


def in_series(**changes):
    """`compare_series` with one or more of its properties changed."""

    def answer(calls, wait, rounds=40, series=10, now=time.perf_counter):
        has = {
            "cold": series,
            "timed": series,
            "idle": True,
            "done": True,
            "order": "drawn",
            "divisor": series,
        } | changes
        seconds = np.empty((rounds, len(calls)))
        for number in range(rounds):
            order = random.sample(range(len(calls)), len(calls))
            for place in order if has["order"] == "drawn" else range(len(calls)):
                for _ in range(has["cold"]):
                    calls[place]()
                if has["idle"]:
                    wait()
                begin = now()
                for _ in range(has["timed"]):
                    calls[place]()
                if has["done"]:
                    wait()
                seconds[number, place] = (now() - begin) / has["divisor"]
        return seconds

    return answer


def series_of_everything(calls, wait, rounds=40, series=10, now=time.perf_counter):
    """Hands compare functions that make several calls: the first ones count."""
    return (
        compare(
            [lambda call=call: [call() for _ in range(series)] for call in calls], wait, rounds, now
        )
        / series
    )


def series_as_rounds(calls, wait, rounds=40, series=10, now=time.perf_counter):
    """Times one call after the calls off the clock."""
    return in_series(timed=1, divisor=1)(calls, wait, rounds, series, now)


def series_by_a_helper(calls, wait, rounds=40, series=10, now=time.perf_counter):
    def run(call):
        for _ in range(series):
            call()
        wait()
        return now()

    table = np.zeros((rounds, len(calls)))
    for row in table:
        for place in np.random.permutation(len(calls)):  # noqa: NPY002
            row[place] = (-run(calls[place]) + run(calls[place])) / series
    return table


def series_after_a_warm_up(calls, wait, rounds=40, series=10, now=time.perf_counter):
    for call in calls * 5:
        call()
    return compare_series(calls, wait, rounds, series, now).tolist()


def null_compare(columns, ratio=lambda a, b: a / b, calls=lambda old, new: [old, old, new]):
    """An answer that takes the ratio of these columns, of these calls."""

    def answer(old, new, compare):
        seconds = compare(calls(old, new))
        return tuple(ratio(seconds[:, a], seconds[:, b]) for a, b in columns)

    return answer


def null_in_a_second_call(old, new, compare):
    seconds, null = compare([old, new]), compare([old, old])
    return seconds[:, 0] / seconds[:, 1], null[:, 0] / null[:, 1]


def null_by_names(old, new, compare):
    before, after, again = compare(calls=[old, new, old]).T
    return before / after, before / again


def null_as_a_list(old, new, compare):
    ratios, null_ratios = [], []
    for first, change, second in compare([old, new, old]):
        ratios.append(first / change)
        null_ratios.append(second / first)
    return [ratios, null_ratios]


def largest_difference(batches, is_small, shape=True):
    """An answer that looks at these batches, and at the largest difference in this way."""

    def answer(network, suspect, inputs, tolerance=1e-4):
        for batch in batches(inputs):
            expected, output = network(batch), suspect(batch)
            if shape and output.shape != expected.shape:
                return False
            if not is_small(output - expected, expected, tolerance):
                return False
        return True

    return answer


def two_batches(inputs):
    return inputs, inputs.flip(-1)


def relative(difference, expected, tolerance):
    return difference.abs().max() <= tolerance * expected.abs().max()


def inputs_overwritten(network, suspect, inputs, tolerance=1e-4):
    first = same_answers(network, suspect, inputs, tolerance)
    inputs *= -1
    return first and same_answers(network, suspect, inputs, tolerance)


def by_torch_testing(network, suspect, inputs, tolerance=1e-4):
    generator = torch.Generator().manual_seed(1)
    places = torch.randperm(inputs.shape[-1], generator=generator)
    for batch in (inputs, inputs[..., places]):
        expected = network(batch)
        limit = tolerance * float(expected.abs().max())
        try:
            torch.testing.assert_close(suspect(batch), expected, rtol=0, atol=limit)
        except AssertionError:
            return False
    return True


def by_a_norm(network, suspect, inputs, tolerance=1e-4):
    def near(batch):
        expected, output = network(batch), suspect(batch)
        if output.shape != expected.shape:
            return False
        return bool((output - expected).norm() <= tolerance * expected.norm())

    return near(inputs) and near(inputs.roll(1, -1))


def compare_medians(ratios, null_ratios):
    middle = np.median(ratios)
    return "faster" if middle > 1 else "slower" if middle < 1 else "not distinguishable"


def compare_means(ratios, null_ratios):
    middle, floor = np.mean(ratios), abs(np.mean(null_ratios) - 1)
    return (
        "faster"
        if middle > 1 + floor
        else "slower"
        if middle < 1 - floor
        else "not distinguishable"
    )


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

    (low, high), null = interval(ratios), interval(null_ratios)
    floor = max(null[1], 1 / null[0]) - 1
    middle = (low + high) / 2
    if middle > 1 + floor and low > 1:
        return "faster"
    return "slower" if middle < 1 / (1 + floor) and high < 1 else "not distinguishable"


def turn_it_around(ratios, null_ratios):
    return {"faster": "slower", "slower": "faster"}.get(
        is_real(ratios, null_ratios), "not distinguishable"
    )


def by_a_bootstrap(ratios, null_ratios):
    random = np.random.default_rng(0)

    def interval(values):
        draws = random.choice(values, (1000, len(values)))
        return np.percentile(np.median(draws, axis=1), [2.5, 97.5])

    (low, high), null = interval(ratios), interval(null_ratios)
    floor = max(null[1], 1 / null[0]) - 1
    return (
        "faster"
        if low > 1 + floor
        else "slower"
        if high < 1 / (1 + floor)
        else "not distinguishable"
    )


def on_a_log_scale(ratios, null_ratios):
    random = np.random.default_rng(7)

    def interval(values):
        draws = np.median(random.choice(np.log(values), (800, len(values))), axis=1)
        return np.quantile(draws, (0.025, 0.975))

    low, high = interval(ratios)
    floor = np.abs(interval(null_ratios)).max()
    return "faster" if low > floor else "slower" if high < -floor else "not distinguishable"


def multiply_its_input(ratios, null_ratios):
    word = is_real(ratios, null_ratios)
    ratios *= 2
    return word


class AnyWord(str):
    """Equal to every text."""

    def __eq__(self, other):
        return True

    __hash__ = str.__hash__


WRONG = {
    "compare": {
        "does not warm up": compared(warm=0),
        "warms up with one call": compared(warm=1),
        "counts the warm-up in": warm_up_counted_in,
        "does not wait before the clock starts": compared(before=False),
        "does not wait before the clock stops": compared(after=False),
        "times first all of the first function": compared_apart,
        "keeps one order": compared(order="fixed"),
        "draws the order once": compared(order="once"),
        "fills the columns in the order of the calls": compared(order="columns"),
        "times five calls in a turn": compared(calls=5),
        "returns milliseconds": compared(scale=1e3),
        "reads another clock": compared(own=False),
        "starts the clock once a round": clock_read_once_a_round,
        "returns the mean of the rounds": lambda *given, **named: compare(*given, **named).mean(
            axis=0
        ),
        "returns the median of the rounds": lambda *given, **named: np.median(
            compare(*given, **named), axis=0
        ),
        "returns rows for functions": lambda *given, **named: compare(*given, **named).T,
    },
    "compare-series": {
        "has no calls off the clock": in_series(cold=0),
        "has one call off the clock": in_series(cold=1),
        "does not divide": in_series(divisor=1),
        "divides by all calls of the turn": in_series(divisor=8),
        "times one call": series_as_rounds,
        "times one call and divides": in_series(timed=1),
        "does not wait before the clock starts": in_series(idle=False),
        "does not wait before the clock stops": in_series(done=False),
        "keeps one order": in_series(order="fixed"),
        "lets the first calls count": series_of_everything,
        "times single calls": lambda calls, wait, rounds, series, now: compare(
            calls, wait, rounds, now
        ),
    },
    "null-arm": {
        "turns the ratio around": null_compare([(2, 0), (0, 1)]),
        "measures the null arm at another time": null_in_a_second_call,
        "takes the new code twice": null_compare(
            [(0, 1), (1, 2)], calls=lambda old, new: [old, new, new]
        ),
        "divides a time by itself": null_compare([(0, 2), (0, 0)]),
        "exchanges the two": null_compare([(0, 1), (0, 2)]),
        "takes differences": null_compare([(0, 2), (0, 1)], ratio=lambda a, b: a - b),
        "takes medians before it divides": lambda old, new, compare: [
            np.median(values) for values in null_arm(old, new, compare)
        ],
        "has no null arm": null_compare([(0, 1), (0, 0)], calls=lambda old, new: [old, new]),
        "shuffles the rounds of one": lambda old, new, compare: (
            (seconds := compare([old, old, new]))[:, 0] / np.roll(seconds[:, 2], 1),
            seconds[:, 0] / seconds[:, 1],
        ),
    },
    "same-answers": {
        "looks at the first inputs only": largest_difference(lambda inputs: [inputs], relative),
        "draws another batch of normal numbers": largest_difference(
            lambda inputs: [inputs, torch.randn_like(inputs)], relative
        ),
        "adds a number to every input": largest_difference(
            lambda inputs: [inputs, inputs + 1000], relative
        ),
        "looks at the first inputs twice": largest_difference(
            lambda inputs: [inputs, inputs.clone()], relative
        ),
        "turns the rows around, of which there may be one": largest_difference(
            lambda inputs: [inputs, inputs.flip(0)], relative
        ),
        "does not look at the shape": largest_difference(two_batches, relative, shape=False),
        "asks for equal bits": largest_difference(
            two_batches, lambda gap, expected, tolerance: not gap.any()
        ),
        "takes an absolute tolerance": largest_difference(
            two_batches, lambda gap, expected, tolerance: gap.abs().max() <= tolerance
        ),
        "takes the mean difference": largest_difference(
            two_batches,
            lambda gap, expected, tolerance: abs(gap.mean()) <= tolerance * expected.abs().max(),
        ),
        "lets NaN pass": largest_difference(
            two_batches,
            lambda gap, expected, tolerance: not gap.abs().max() > tolerance * expected.abs().max(),
        ),
        "forgets the absolute value": largest_difference(
            two_batches,
            lambda gap, expected, tolerance: gap.max() <= tolerance * expected.abs().max(),
        ),
        "compares classes": largest_difference(
            lambda inputs: [inputs], lambda gap, expected, tolerance: True
        ),
        "writes over its inputs": inputs_overwritten,
        "turns the answer around": lambda *given: not same_answers(*given),
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
}


def judged(floor_of, slower=lambda floor: 1 / (1 + floor), interval=None):
    """An answer with another floor, another band, or another interval of the ratios."""

    def middle(values):
        rank = max(1, round(len(values) / 2 - len(values) ** 0.5))
        return np.sort(values)[[rank - 1, -rank]]

    def answer(ratios, null_ratios):
        low, high = (interval or middle)(ratios)
        floor = floor_of(middle(null_ratios), null_ratios)
        return (
            "faster"
            if low > 1 + floor
            else "slower"
            if high < slower(floor)
            else "not distinguishable"
        )

    return answer


def both_ends(ends, null):
    return max(ends[1], 1 / ends[0]) - 1


def quartiles(ratios, null_ratios):
    """The range of the middle half of the pairs, which more pairs do not narrow."""
    low, high = np.quantile(ratios, (0.25, 0.75))
    null = np.quantile(null_ratios, (0.25, 0.75))
    factor = max(null[1], 1 / null[0])
    return "faster" if low > factor else "slower" if high < 1 / factor else "not distinguishable"


def ranks_of_the_ratios(ratios, null_ratios):
    rank = max(1, round(len(ratios) / 2 - len(ratios) ** 0.5))
    (low, high), null = (np.sort(each)[[rank - 1, -rank]] for each in (ratios, null_ratios))
    floor = both_ends(null, null_ratios)
    return (
        "faster"
        if low > 1 + floor
        else "slower"
        if high < 1 / (1 + floor)
        else "not distinguishable"
    )


WRONG["is-real"] |= {
    "the middle half of the pairs": quartiles,
    "the distance of the ends from 1": judged(lambda ends, null: np.abs(ends - 1).max()),
    "without a floor": judged(lambda ends, null: 0),
    "a floor of 5 %": judged(lambda ends, null: 0.05),
    "the null run's median as the floor": judged(lambda ends, null: abs(np.median(null) - 1)),
    "the null run's upper end only": judged(lambda ends, null: ends[1] - 1),
    "the null run's lower end only": judged(lambda ends, null: 1 - ends[0]),
    "a band of 1 - floor": judged(both_ends, slower=lambda floor: 1 - floor),
    "the median of the ratios": judged(both_ends, interval=lambda values: [np.median(values)] * 2),
    "the null run at the ranks of the ratios": ranks_of_the_ratios,
}
RIGHT = {
    "compare": {
        "by a shuffled list of places": in_a_shuffled_list,
        "drops rounds to warm up": warm_up_in_the_first_rounds,
        "returns lists": lambda *given, **named: compare(*given, **named).tolist(),
    },
    "compare-series": {
        "by a helper": series_by_a_helper,
        "after a warm-up, as lists": series_after_a_warm_up,
    },
    "null-arm": {"by three columns": null_by_names, "round by round": null_as_a_list},
    "is-real": {
        "by a bootstrap": by_a_bootstrap,
        "by a bootstrap of the logarithms": on_a_log_scale,
    },
    "same-answers": {"by torch.testing": by_torch_testing, "by the norm": by_a_norm},
}
