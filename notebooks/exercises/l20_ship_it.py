"""Exercises of lesson 20: weights on paper, tries, moved copies, what a technique is worth, the
delivery.
"""

import itertools
import math

import torch

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


my_tries = [
    {"int8": True},
    {"rank": 16, "int8": True},
    {"share": 0.6, "epochs": 4, "int8": True},
    {"share": 0.6, "rank": 16, "epochs": 4, "int8": True},
]
FIELDS = {"share": (float, 0, 0.95), "rank": (int, 0, 1024), "epochs": (float, 0, 100)}
SWITCHES = {"int8", "coded"}
MOST_TRIES = 12


def require_design(design):
    """Raise `Wrong` unless this is a dict of a design's fields, in their ranges."""
    expect(
        isinstance(design, dict) and design,
        f"A design is a dict with a field or more, found {shorten(design)}.",
    )
    for name, value in design.items():
        known = ", ".join([*FIELDS, *sorted(SWITCHES)])
        expect(
            name in FIELDS or name in SWITCHES,
            f"{shorten(name)} is no field of a design; there are {known}.",
        )
        if name in SWITCHES:
            expect(isinstance(value, bool), f"{name} is True or False, found {shorten(value)}.")
            continue
        kind, low, high = FIELDS[name]
        is_number = isinstance(value, int) or (kind is float and isinstance(value, float))
        expect(
            is_number and not isinstance(value, bool),
            f"{name} is a {kind.__name__}, found {shorten(value)}.",
        )
        expect(low <= value <= high, f"{name} lies between {low} and {high}, found {value}.")


def techniques_of(design):
    return sum(bool(design.get(name)) for name in ("share", "rank", "int8"))


def verify_my_tries(answer):
    """An open task: any designs that can be built pass."""
    expect(isinstance(answer, list), f"Expected a list of designs, found {shorten(answer)}.")
    expect(
        1 <= len(answer) <= MOST_TRIES, f"Expected 1 to {MOST_TRIES} designs, found {len(answer)}."
    )
    for design in answer:
        require_design(design)
    together = max(techniques_of(design) for design in answer)
    expect(
        together >= 2,
        "One design at least has to combine two of share, rank and int8: section 5 takes it apart.",
    )


def moved(images, shifts):
    background = images.min()
    copies = torch.full_like(images, float(background))
    height, width = images.shape[-2:]
    for image, copy, (down, right) in zip(images, copies, shifts.tolist(), strict=True):
        part = image[
            :, max(-down, 0) : height - max(down, 0), max(-right, 0) : width - max(right, 0)
        ]
        top, left = max(down, 0), max(right, 0)
        copy[:, top : top + part.shape[1], left : left + part.shape[2]] = part
    return copies


def verify_moved(answer):
    answer = untouched(answer)
    generator = torch.Generator().manual_seed(0)
    for count, channels, height, width, furthest in (
        (6, 1, 5, 5, 1),
        (9, 3, 4, 7, 2),
        (1, 2, 8, 3, 1),
    ):
        images = torch.randn(count, channels, height, width, generator=generator) - 0.5
        shifts = torch.randint(-furthest, furthest + 1, (count, 2), generator=generator)
        shifts[0] = torch.tensor([furthest, 0])
        before = images.clone()
        copies, expected = answer(images, shifts), moved(images, shifts)
        expect(torch.equal(images, before), "`images` was changed: fill a tensor of your own.")
        shape = tuple(images.shape)
        right_form = isinstance(copies, torch.Tensor) and copies.shape == images.shape
        expect(right_form, f"Expected a torch tensor of the shape of the images, {shape}.")
        for image, copy, shift in zip(expected, copies, shifts.tolist(), strict=True):
            where = f"An image of {height} x {width}, moved by (down, right) = {tuple(shift)}"
            inside = image != images.min()
            expect(
                torch.equal(copy[inside], image[inside]),
                f"{where}: not every pixel is where it belongs.",
            )
            expect(
                torch.equal(copy, image),
                f"{where}: what comes in is not the smallest number of all images.",
            )


delivered = {"share": 0.6, "rank": 16, "epochs": 4, "int8": True, "coded": True}


def verify_delivered(answer):
    """An open task: any design that can be built passes."""
    require_design(answer)


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
        id="my-tries",
        importance=3,
        judged_by="the board",
        task="Designs that shall fill the order. There is no right answer: the judge decides.",
        difficulty=2,
        minutes=15,
        hint="Begin with one technique alone, and add the next. The table of section 2 says what "
        "fits on paper. Where "
        "the judge says that too few copies are right, heal longer or cut less.",
        reference=my_tries,
        verify=verify_my_tries,
    ),
    Exercise(
        id="moved",
        importance=3,
        task="Copies of images, each moved by a shift of its own.",
        difficulty=2,
        minutes=10,
        hint="Begin with a tensor full of the background. Moved down by d, row r "
        "becomes row r + d: slices "
        "of the image and of the copy, which have the same size. max(d, 0) and max(-d, 0) serve "
        "both signs.",
        reference=moved,
        verify=verify_moved,
        imports="import torch",
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
    Exercise(
        id="delivered",
        judged_by="the board",
        task="The design that you deliver. There is no right answer: the judge decides.",
        difficulty=2,
        minutes=8,
        hint="Take your best try, and read what the judge says of the next medal. Bytes: fewer "
        "channels, a lower rank. "
        "Right answers: more epochs. What the picture above says is worth little, "
        "you may give back.",
        reference=delivered,
        verify=verify_delivered,
    ),
)
