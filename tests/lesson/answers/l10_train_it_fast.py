"""Answers to the exercises of lesson 10: wrong ones that must be rejected, right ones written differently."""

import numpy as np


def parts(layers, operations_per_s, bytes_per_s):
    """(seconds to compute, seconds to move) of one pass of each layer."""
    return [(2 * multiply_adds / operations_per_s, moved / bytes_per_s) for multiply_adds, moved in layers]


def one_operation_each(images, layers, operations_per_s, bytes_per_s):
    passes = [3 if place else 2 for place in range(len(layers))]
    each = [max(a / operations_per_s, b / bytes_per_s) for a, b in layers]
    return images * sum(p * s for p, s in zip(passes, each, strict=True))


def three_passes_for_all(images, layers, *machine):
    return images * sum(3 * max(pair) for pair in parts(layers, *machine))


def the_last_layer_is_cheaper(images, layers, *machine):
    return images * sum(
        (2 if place == len(layers) - 1 else 3) * max(p) for place, p in enumerate(parts(layers, *machine))
    )


def adds_both(images, layers, *machine):
    return images * sum((3 if place else 2) * sum(pair) for place, pair in enumerate(parts(layers, *machine)))


def the_longer_of_the_sums(images, layers, *machine):
    passes = [3 if place else 2 for place in range(len(layers))]
    totals = [sum(p * pair[k] for p, pair in zip(passes, parts(layers, *machine), strict=True)) for k in (0, 1)]
    return images * max(totals)


def only_computes(images, layers, operations_per_s, bytes_per_s):
    return images * sum((3 if place else 2) * 2 * each[0] / operations_per_s for place, each in enumerate(layers))


def forward_only(images, layers, *machine):
    return images * sum(max(pair) for pair in parts(layers, *machine))


def one_image(images, layers, *machine):
    return least_by_hand(1, layers, *machine)


def empties_the_list(images, layers, *machine):
    found = least_by_hand(images, layers, *machine)
    layers.clear()
    return found


def the_first_that_computes(images, layers, operations_per_s, bytes_per_s):
    times = [max(each) for each in parts(layers, operations_per_s, bytes_per_s)]
    first = next((place for place, (multiply_adds, _) in enumerate(layers) if multiply_adds), 0)
    return images * (3 * sum(times) - times[first])


def the_first_by_its_numbers(images, layers, *machine):
    passes = [2 if layer == layers[0] else 3 for layer in layers]
    return images * sum(p * max(pair) for p, pair in zip(passes, parts(layers, *machine), strict=True))


def least_by_hand(images, layers, *machine):
    total = sum(3 * max(pair) for pair in parts(layers, *machine))
    return images * (total - (max(parts(layers[:1], *machine)[0]) if layers else 0))


def least_as_an_array(images, layers, operations_per_s, bytes_per_s):
    multiply_adds, moved = np.array(layers, float).T
    longer = np.maximum(2 * multiply_adds / operations_per_s, moved / bytes_per_s)
    return images * (3 * longer.sum() - longer[0])


def with_a_loop(images, layers, operations_per_s, bytes_per_s):
    seconds, passes = 0, 2
    for multiply_adds, moved in layers:
        computing = passes * images * multiply_adds * 2 / operations_per_s
        moving = passes * images * moved / bytes_per_s
        seconds += computing if computing > moving else moving
        passes = 3
    return seconds


def begins_at_zero(step, steps, peak, last):
    if step < peak:
        return step / peak
    return 1 + (last - 1) * (step - peak) / max(steps - 1 - peak, 1)


def reaches_the_end_one_step_late(step, steps, peak, last):
    if step < peak:
        return (step + 1) / (peak + 1)
    return 1 + (last - 1) * (step - peak) / (steps - peak)


def peaks_one_step_early(step, steps, peak, last):
    if step < peak:
        return (step + 1) / peak
    return 1 + (last - 1) * (step - peak) / max(steps - 1 - peak, 1)


def divides_by_zero(step, steps, peak, last):
    if step < peak:
        return (step + 1) / (peak + 1)
    rest = steps - 1 - peak
    return 1 + (last - 1) * (step - peak) / rest if rest else last


def falls_to_zero(step, steps, peak, last):
    return triangle_by_min(step, steps, peak, 0.0)


def never_falls(step, steps, peak, last):
    return min(1.0, (step + 1) / (peak + 1))


def falls_along_a_cosine(step, steps, peak, last):
    import math

    if step < peak:
        return (step + 1) / (peak + 1)
    way = (step - peak) / max(steps - 1 - peak, 1)
    return last + (1 - last) * (1 + math.cos(math.pi * way)) / 2


def triangle_by_min(step, steps, peak, last):
    rest = steps - 1 - peak
    falling = last + (1 - last) * (steps - 1 - step) / rest if rest > 0 else 1.0
    return min((step + 1) / (peak + 1), falling)


def triangle_by_table(step, steps, peak, last):
    rise = [(each + 1) / (peak + 1) for each in range(peak + 1)]
    rest = steps - len(rise)
    fall = [1 - (1 - last) * (each + 1) / rest for each in range(rest)]
    return (rise + fall)[step]


FAST = {"images": 3_200, "batch": 64, "optimizer": "adamw", "learning_rate": 0.01, "schedule": "onecycle", "size": 16}
FAST |= {"network": "vgg-small"}

WRONG = {
    "least-seconds-of": {
        "counts one operation per multiply-add": one_operation_each,
        "counts three passes for the first layer": three_passes_for_all,
        "spares the last layer": the_last_layer_is_cheaper,
        "adds computing and moving": adds_both,
        "takes the longer of the two sums": the_longer_of_the_sums,
        "forgets what is moved": only_computes,
        "forgets the way back": forward_only,
        "forgets the number of images": one_image,
        "changes the list": empties_the_list,
        "knows the first layer by its numbers": the_first_by_its_numbers,
        "spares the first layer that computes": the_first_that_computes,
    },
    "triangle": {
        "begins with a step of rate 0": begins_at_zero,
        "reaches the end one step late": reaches_the_end_one_step_late,
        "peaks one step early": peaks_one_step_early,
        "has no case for a peak at the end": divides_by_zero,
        "falls to 0, whatever is asked for": falls_to_zero,
        "never falls": never_falls,
        "falls along a cosine": falls_along_a_cosine,
    },
    "fast-recipe": {
        "the reference itself": {"network": "vgg-small", "images": 5_120, "optimizer": "sgd", "learning_rate": 0.05},
        "two fifths of its images, and all else alike": FAST
        | {
            "images": 2_048,
            "batch": 128,
            "optimizer": "sgd",
            "learning_rate": 0.05,
            "schedule": "constant",
            "size": 28,
        },
        "too few images": FAST | {"images": 640},
        "too few steps": FAST | {"batch": 800},
        "a rate of a billion": FAST | {"learning_rate": 1e9},
        "a rate that teaches nothing": FAST | {"learning_rate": 1e-5},
        "a field that there is not": FAST | {"threads": 2},
        "images too small for the network": FAST | {"size": 8},
        "a list": [FAST],
    },
}

RIGHT = {
    "least-seconds-of": {
        "with a loop": with_a_loop,
        "three passes less one": least_by_hand,
        "as an array": least_as_an_array,
    },
    "triangle": {"as the lower of two lines": triangle_by_min, "as a table": triangle_by_table},
    "fast-recipe": {
        "with more images": FAST,
        "with averages that follow fast": FAST | {"images": 2_560, "norm_momentum": 0.4},
        "with a small batch and sgd": FAST
        | {"optimizer": "sgd", "learning_rate": 0.05, "batch": 32, "size": 20, "images": 3_072},
    },
}
