"""Answers to the exercises of lesson 20: wrong ones that must be rejected, right ones written
differently.
"""

import itertools
import math
from fractions import Fraction

import torch
from torch.nn import functional as F

from labkit.lesson.exercises.l20_ship_it import delivered, fair_factors, moved, weights_left

TWO = {"share": 0.5, "int8": True}


def left_as(width_left, *, first=1, pixels=9, head=10, biases=0, joined=False):
    """`weights_left` with a choice of mistakes."""

    def answer(widths, hidden, share, rank):
        channels = [first, *(width_left(width, share) for width in widths)]
        total = sum(9 * a * b + biases * b for a, b in itertools.pairwise(channels))
        wide, units = pixels * channels[-1], width_left(hidden, share)
        thin = rank * (wide + units)
        if joined:
            thin = rank * wide * units
        return total + (thin if rank else wide * units) + head * units

    return answer


def up(width, share):
    return -8 * int(-round(width * (1 - share), 9) // 8)


def up_exactly(width, share):
    """The share as the fraction that it is written as."""
    return 8 * math.ceil(width * (1 - Fraction(str(share))) / 8)


def one_side(widths, hidden, share, rank):
    """Each layer writes fewer channels, and reads as many as before."""
    channels = [1, *widths]
    total = sum(9 * before * up(after, share) for before, after in itertools.pairwise(channels))
    wide, units = 9 * widths[-1], up(hidden, share)
    return total + (rank * (wide + units) if rank else wide * units) + 10 * units


def squared(widths, hidden, share, rank):
    """The whole network times (1 - share)^2."""
    return round(weights_left(widths, hidden, 0.0, rank) * (1 - share) ** 2)


def thin_by_the_whole(widths, hidden, share, rank):
    """The thin layers of the whole network, whatever was cut."""
    if not rank:
        return weights_left(widths, hidden, share, rank)
    units = up(hidden, share)
    small = weights_left(widths, hidden, share, rank) - rank * (9 * up(widths[-1], share) + units)
    return small + rank * (9 * widths[-1] + hidden)


def geometric(found):
    return math.prod(found) ** (1 / len(found))


def walked(orders, score, change=lambda after, before: after / before, mean=geometric):
    """`fair_factors` with a choice of mistakes."""
    found = {}
    for order in orders:
        chosen = frozenset()
        for name in order:
            found.setdefault(name, []).append(change(score(chosen | {name}), score(chosen)))
            chosen |= {name}
    return {name: mean(each) for name, each in found.items()}


def alone(orders, score):
    return {name: score(frozenset({name})) / score(frozenset()) for name in orders[0]}


def on_top(orders, score):
    everything = frozenset(orders[0])
    return {name: score(everything) / score(everything - {name}) for name in orders[0]}


def halfway(orders, score):
    one, other = alone(orders, score), on_top(orders, score)
    return {name: math.sqrt(one[name] * other[name]) for name in one}


def padded(images, shifts, *, fill=None, signs=(1, 1), swapped=False):
    """`moved` by padding, with a choice of mistakes."""
    height, width = images.shape[-2:]
    fill = float(images.min()) if fill is None else fill
    copies = []
    for image, shift in zip(images, shifts.tolist(), strict=True):
        down, right = (
            sign * step for sign, step in zip(signs, shift[::-1] if swapped else shift, strict=True)
        )
        wide = F.pad(image, (width, width, height, height), value=fill)
        copies.append(wide[:, height - down : 2 * height - down, width - right : 2 * width - right])
    return torch.stack(copies)


def rolled(images, shifts):
    """What leaves on one side comes in on the other."""
    return torch.stack(
        [image.roll(shift, (1, 2)) for image, shift in zip(images, shifts.tolist(), strict=True)]
    )


def all_by_the_first(images, shifts):
    return moved(images, shifts[:1].expand(len(images), 2))


def least_of_each(images, shifts):
    return torch.cat(
        [moved(image[None], shift[None]) for image, shift in zip(images, shifts, strict=True)]
    )


def in_place(images, shifts):
    images.copy_(moved(images, shifts))
    return images


def first_channel(images, shifts):
    copies = moved(images, shifts)
    copies[:, 1:] = copies[:, :1]
    return copies


def one_pixel_only(images, shifts):
    return moved(images, shifts.clamp(-1, 1))


WRONG = {
    "weights-left": {
        "rounded down to a block": left_as(
            lambda width, share: max(8 * int(width * (1 - share) // 8), 8)
        ),
        "no blocks": left_as(lambda width, share: math.ceil(width * (1 - share))),
        "rounded to the nearest block": left_as(
            lambda width, share: max(8 * round(width * (1 - share) / 8), 8)
        ),
        "the share that goes": left_as(lambda width, share: 8 * math.ceil(width * share / 8)),
        "rounded up with the error of the floats": left_as(
            lambda width, share: 8 * math.ceil(width * (1 - share) / 8)
        ),
        "whole channels first": left_as(
            lambda width, share: 8 * math.ceil(round(width * (1 - share)) / 8)
        ),
        "six convolutions at most": lambda widths, *others: weights_left(widths[:6], *others),
        "reads three colours": left_as(up, first=3),
        "forgets the nine pixels": left_as(up, pixels=1),
        "forgets the head": left_as(up, head=0),
        "counts biases": left_as(up, biases=1),
        "thin layers multiplied": left_as(up, joined=True),
        "one side only": one_side,
        "by the square of what is left": squared,
        "thin layers of the whole network": thin_by_the_whole,
        "thin layers only where they save": lambda widths, hidden, share, rank: min(
            weights_left(widths, hidden, share, rank), weights_left(widths, hidden, share, 0)
        ),
        "never thin": lambda widths, hidden, share, rank: weights_left(widths, hidden, share, 0),
        "in kB": lambda *design: weights_left(*design) / 1e3,
        "bytes in fp32": lambda *design: 4 * weights_left(*design),
    },
    "my-tries": {
        "a dict": TWO,
        "no design": [],
        "thirteen designs": [TWO] * 13,
        "a tuple for a design": [(0.5, 32, 2)],
        "an empty design": [TWO, {}],
        "a field that there is not": [TWO | {"bits": 4}],
        "all channels gone": [TWO | {"share": 1.0}],
        "a share in percent": [TWO | {"share": 50}],
        "a rank that is no whole number": [TWO | {"rank": 0.5}],
        "a switch as a number": [TWO | {"int8": 1}],
        "one technique at a time": [{"share": 0.5, "epochs": 2}, {"int8": True}],
    },
    "delivered": {
        "a list of one": [delivered],
        "nothing": {},
        "a share below zero": delivered | {"share": -0.1},
        "a thousand epochs": delivered | {"epochs": 1000},
        "a share that is a switch": delivered | {"share": True},
    },
    "moved": {
        "rolled": rolled,
        "zero comes in": lambda images, shifts: padded(images, shifts, fill=0.0),
        "the least of each image comes in": least_of_each,
        "up for down": lambda images, shifts: padded(images, shifts, signs=(-1, 1)),
        "left for right": lambda images, shifts: padded(images, shifts, signs=(1, -1)),
        "down and right swapped": lambda images, shifts: padded(images, shifts, swapped=True),
        "all by the first shift": all_by_the_first,
        "by one pixel at most": one_pixel_only,
        "the first channel for all": first_channel,
        "in place": in_place,
        "unmoved": lambda images, shifts: images.clone(),
        "an array": lambda images, shifts: moved(images, shifts).numpy(),
    },
    "fair-factors": {
        "each alone": alone,
        "each on top of all others": on_top,
        "halfway between first and last": halfway,
        "differences": lambda orders, score: walked(
            orders, score, change=lambda after, before: after - before
        ),
        "an arithmetic mean": lambda orders, score: walked(
            orders, score, mean=lambda found: sum(found) / len(found)
        ),
        "a product": lambda orders, score: walked(orders, score, mean=math.prod),
        "the first order only": lambda orders, score: fair_factors(orders[:1], score),
        "the last order only": lambda orders, score: fair_factors(orders[-1:], score),
        "an order given twice counts once": lambda orders, score: fair_factors(
            list(dict.fromkeys(orders)), score
        ),
        "upside down": lambda orders, score: walked(
            orders, score, change=lambda after, before: before / after
        ),
        "logarithms": lambda orders, score: {
            n: math.log(f) for n, f in fair_factors(orders, score).items()
        },
        "rounded": lambda orders, score: {
            n: round(f, 3) for n, f in fair_factors(orders, score).items()
        },
        "a list": lambda orders, score: list(fair_factors(orders, score).values()),
    },
}


def layer_by_layer(widths, hidden, share, rank):
    total, before = 0, 1
    for width in widths:
        total, before = total + 9 * before * up(width, share), up(width, share)
    units = up(hidden, share)
    large = before * 9 * units
    if rank:
        large = before * 9 * rank + rank * units
    return total + large + units * 10


def by_logarithms(orders, score):
    found = dict.fromkeys(orders[0], 0.0)
    for order in orders:
        for place in range(len(order)):
            found[order[place]] += math.log(
                score(frozenset(order[: place + 1])) / score(frozenset(order[:place]))
            )
    return {name: math.exp(total / len(orders)) for name, total in found.items()}


RIGHT = {
    "my-tries": {
        "one design": [TWO],
        "with a coded file": [{"rank": 8, "int8": True, "coded": True}, {"share": 0.3}],
    },
    "delivered": {"the reference": delivered, "nothing but INT8": {"int8": True}},
    "moved": {"by padding": padded, "the reference": moved},
    "weights-left": {
        "layer by layer": layer_by_layer,
        "by pairs": left_as(up),
        "by fractions": left_as(up_exactly),
        "the reference": weights_left,
    },
    "fair-factors": {
        "by logarithms": by_logarithms,
        "by lists": walked,
        "the reference": fair_factors,
    },
}
