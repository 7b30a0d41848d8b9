"""Exercises of lesson 20: a network's weights on paper, and what each technique is worth over
several orders.
"""

import itertools
import math

from labkit.lesson.exercises import Exercise, expect, expect_close, shorten, untouched


def weights_left(widths, hidden, share, rank):
    def left(width):
        # 80 * (1 - 0.7) is 24.000000000000004
        return 8 * math.ceil(round(width * (1 - share), 6) / 8)

    channels = [1, *map(left, widths)]
    total = sum(9 * before * after for before, after in itertools.pairwise(channels))
    pixels, units = 9 * channels[-1], left(hidden)
    total += rank * (pixels + units) if rank else pixels * units
    return total + 10 * units


CASES = (
    ((24, 40), 56, 0.0, 0, "whole"),
    ((24, 40), 56, 0.0, 5, "the thin layers, all channels there"),
    ((24, 40), 56, 0.6, 0, "six tenths gone, no thin layers"),  # 9.6 -> 16, 16 -> 16, 22.4 -> 24
    ((24, 40), 56, 0.6, 3, "six tenths gone, thin layers"),
    ((8,), 16, 0.0, 40, "thin layers of so high a rank that they hold more than the layer did"),
    ((40,), 72, 0.45, 0, "one convolution"),
    ((16, 24, 48, 56, 64, 72, 88), 136, 0.7, 7, "seven convolutions"),
    ((16, 24), 40, 0.95, 2, "almost all gone: one block stays"),
    ((33, 47), 59, 0.3, 0, "widths that are no multiples of 8"),
    ((64, 65), 72, 0.63, 0, "of 65 channels 24.05 are left, more than three whole blocks"),
    (
        (80,),
        8,
        0.7,
        0,
        "of 80 channels 24 are left, three whole blocks: in floats 80 * (1 - 0.7) is a little more",
    ),
)


def verify_weights_left(answer):
    answer = untouched(answer)
    for widths, hidden, share, rank, what in CASES:
        found, wanted = (
            answer(widths, hidden, share, rank),
            weights_left(widths, hidden, share, rank),
        )
        where = f"weights_left({widths}, {hidden}, {share}, {rank}), {what}"
        expect(
            isinstance(found, int),
            f"{where}: expected a whole number (int), found {shorten(found)}.",
        )
        expect(found == wanted, f"{where}: expected {wanted:,}, found {found:,}.")


def fair_factors(orders, score):
    found = dict.fromkeys(orders[0], 1.0)
    for order in orders:
        for place, name in enumerate(order):
            before, after = frozenset(order[:place]), frozenset(order[: place + 1])
            found[name] *= (score(after) / score(before)) ** (1 / len(orders))
    return found


def verify_fair_factors(answer):
    answer = untouched(answer)
    worth = {"cut": 2.137, "round": 0.513, "cut more": 1.734, "pack": 3.017}

    def score(chosen):
        expect(
            isinstance(chosen, frozenset) and chosen <= set(worth),
            f"`score` wants a frozenset of techniques, found {shorten(chosen)}.",
        )
        overlap = 0.713 if {"cut", "cut more"} <= chosen else 1.0
        return 1.319 * overlap * math.prod(worth[name] for name in chosen)

    for orders in (
        [("round",)],
        [("cut", "cut more", "round")],
        [("cut more", "round", "cut")],
        [("cut", "cut more"), ("cut more", "cut")],
        # an order given twice counts twice
        [("cut", "cut more"), ("cut", "cut more"), ("cut more", "cut")],
        list(itertools.permutations(("pack", "cut", "cut more"))),
        [("pack", "cut", "cut more", "round"), ("cut more", "pack", "round", "cut"),
         ("round", "cut", "pack", "cut more")],
    ):  # fmt: skip
        found, wanted = answer(orders, score), fair_factors(orders, score)
        right = isinstance(found, dict) and set(found) == set(wanted)
        expect(right, f"Expected a dict with the keys {sorted(wanted)}; found {shorten(found)}.")
        for name in wanted:
            expect_close(
                found[name],
                wanted[name],
                f"The factor of {name!r} over {len(orders)} order(s) {orders[:2]}",
            )


EXERCISES = (
    Exercise(
        id="weights-left",
        task="How many weights a smaller design has.",
        difficulty=2,
        minutes=10,
        hint="First the widths that are left (round off the error of the floats before you round "
        "up). A layer reads "
        "what the one before writes; the first reads one channel.",
        reference=weights_left,
        verify=verify_weights_left,
        imports="import itertools\nimport math",
    ),
    Exercise(
        id="fair-factors",
        task="By what factor each technique raises the score, as a fair average over orders.",
        difficulty=3,
        minutes=12,
        hint="Walk through an order: the set before a technique, and the same set with it. The "
        "geometric mean is the "
        "product, to the power of one over the number of orders.",
        reference=fair_factors,
        verify=verify_fair_factors,
    ),
)
