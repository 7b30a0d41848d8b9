"""Answers to the exercises of lesson 13: wrong ones that must be rejected, right ones written
differently.
"""

import numpy as np

from labkit.lesson.exercises.l13_quantization import (
    closest_scale,
    points_lost,
    quantize,
    scale_zero_point,
    stretch,
)

# --- points lost ---


def reach_of(lost, *, ddof=1, factor=1.96, root=True):
    reach = factor * lost.std(ddof=ddof)
    if root:
        reach = reach / np.sqrt(len(lost))
    return lost.mean() - reach, lost.mean(), lost.mean() + reach


def points(before, after):
    return 100.0 * before - 100.0 * after


def not_paired(before, after):
    lost = 100 * (before.mean() - after.mean())
    variance = before.var(ddof=1) / len(before) + after.var(ddof=1) / len(after)
    reach = 196 * np.sqrt(variance)
    return lost - reach, lost, lost + reach


def changed_answers(before, after):
    return reach_of(100.0 * (before != after))


def only_losses(before, after):
    return reach_of(100.0 * (before & ~after))


def by_counting(before, after):
    count = len(before)
    lost = int((before & ~after).sum())
    won = int((~before & after).sum())
    mean = 100 * (lost - won) / count
    squares = 100**2 * (lost + won) - count * mean**2
    reach = 1.96 * (squares / (count - 1) / count) ** 0.5
    return mean - reach, mean, mean + reach


# --- scale and zero point ---


def by_numpy(low, high):
    ends = np.array([low, high, 0.0])
    scale = (ends.max() - ends.min()) / 255
    return scale, np.rint(-ends.min() / scale)


def not_widened(low, high):
    scale = (high - low) / 255
    return scale, round(-low / scale)


def only_low_widened(low, high):
    return not_widened(min(low, 0.0), high)


def only_high_widened(low, high):
    return not_widened(low, max(high, 0.0))


def grid_of(low, high, *, last=255, whole=round):
    low, high = min(low, 0.0), max(high, 0.0)
    scale = (high - low) / last
    return scale, whole(-low / scale)


def around_zero(low, high):
    return max(abs(low), abs(high)) / 127, 128


# --- quantize ---


def wraps_around(x, scale, zero_point):
    return (np.round(x / scale) + zero_point).astype(np.int64).astype(np.uint8)


def rounds_down(x, scale, zero_point):
    return np.clip(np.floor(x / scale) + zero_point, 0, 255).astype(np.uint8)


def casts_without_rounding(x, scale, zero_point):
    return np.clip(x / scale + zero_point, 0, 255).astype(np.uint8)


def clips_before_the_shift(x, scale, zero_point):
    return (np.clip(np.round(x / scale), 0, 255) + zero_point).clip(0, 255).astype(np.uint8)


def number_by_number(x, scale, zero_point):
    integers = [min(255, max(0, round(value / scale) + zero_point)) for value in x.ravel().tolist()]
    return np.array(integers, np.uint8).reshape(x.shape)


# --- the closest grid ---


def rounded_error(w, bits, step):
    top = 2 ** (bits - 1) - 1
    return ((np.clip(np.rint(w / step), -top, top) * step - w) ** 2).sum()


def no_clipping(w, bits):
    return np.abs(w).max() / (2 ** (bits - 1) - 1)


def errors_without_clipping(w, bits):
    top = 2 ** (bits - 1) - 1
    steps = np.linspace(0.1, 1, 91) * np.abs(w).max() / top
    return min(steps, key=lambda step: ((np.round(w / step) * step - w) ** 2).sum())


def one_step_too_many(w, bits):
    steps = np.linspace(0.1, 1, 181) * np.abs(w).max() / 2 ** (bits - 1)
    return min(steps, key=lambda step: rounded_error(w, bits + 1, step))


def the_largest_not_in_size(w, bits):
    steps = np.linspace(0.1, 1, 181) * w.max() / (2 ** (bits - 1) - 1)
    return min(steps, key=lambda step: rounded_error(w, bits, step))


def three_standard_deviations(w, bits):
    return 3 * w.std() / (2 ** (bits - 1) - 1)


def the_end_and_not_the_step(w, bits):
    return closest_scale(w, bits) * (2 ** (bits - 1) - 1)


def five_ends_only(w, bits):
    steps = np.linspace(0.2, 1, 5) * np.abs(w).max() / (2 ** (bits - 1) - 1)
    return min(steps, key=lambda step: rounded_error(w, bits, step))


def from_a_part_on(least):
    """An answer that tries ends from this share of the largest weight on."""

    def answer(w, bits):
        steps = np.linspace(least, 1, 100) * np.abs(w).max() / (2 ** (bits - 1) - 1)
        return float(min(steps, key=lambda step: rounded_error(w, bits, step)))

    return answer


def first_minimum(w, bits):
    steps = np.linspace(1, 0.01, 100) * np.abs(w).max() / (2 ** (bits - 1) - 1)
    errors = [rounded_error(w, bits, step) for step in steps]
    return float(steps[next((at for at in range(99) if errors[at + 1] >= errors[at]), 99)])


def scale_by_regression(w, bits):
    top = 2 ** (bits - 1) - 1
    found = []
    # round, then fit the step to the integers; again and again
    for share in np.linspace(0.05, 1, 150):
        step = share * np.abs(w).max() / top
        for _ in range(5):
            steps = np.clip(np.rint(w / step), -top, top)
            step = (w * steps).sum() / (steps**2).sum()
        found.append((rounded_error(w, bits, step), step))
    return min(found)[1]


def in_a_loop(w, bits):
    best, fewest = None, np.inf
    for percent in range(10, 1001):
        step = percent / 1000 * max(w.max(), -w.min()) / (2 ** (bits - 1) - 1)
        if rounded_error(w, bits, step) < fewest:
            best, fewest = step, rounded_error(w, bits, step)
    return best


# --- stretch ---


def one_factor(weights, rounded):
    return rounded * (weights * weights).sum() / (weights * rounded).sum()


def turned_over(weights, rounded):
    kept = (weights * rounded).sum(axis=1, keepdims=True)
    energy = (weights * weights).sum(axis=1, keepdims=True)
    return rounded * kept / energy


def by_columns(weights, rounded):
    kept = (weights * rounded).sum(axis=0)
    energy = (weights * weights).sum(axis=0)
    return rounded * np.where(kept > 0, energy / np.where(kept > 0, kept, 1), 1)


def same_length(weights, rounded):
    length = np.sqrt((rounded * rounded).sum(axis=1, keepdims=True))
    wanted = np.sqrt((weights * weights).sum(axis=1, keepdims=True))
    return rounded * np.where(length > 0, wanted / np.where(length > 0, length, 1), 1)


def least_error(weights, rounded):
    kept = (weights * rounded).sum(axis=1, keepdims=True)
    length = (rounded * rounded).sum(axis=1, keepdims=True)
    return rounded * np.where(length > 0, kept / np.where(length > 0, length, 1), 1)


def zero_by_zero(weights, rounded):
    energy = (weights * weights).sum(axis=1, keepdims=True)
    return rounded * energy / (weights * rounded).sum(axis=1, keepdims=True)


def row_by_row(weights, rounded):
    rows = []
    for exact, copy in zip(weights, rounded, strict=True):
        rows.append(copy * (exact @ exact) / (exact @ copy) if copy.any() else copy)
    return np.array(rows)


def with_einsum(weights, rounded):
    kept = np.einsum("ij,ij->i", weights, rounded)
    energy = np.einsum("ij,ij->i", weights, weights)
    factors = np.divide(energy, kept, out=np.ones_like(kept), where=kept != 0)
    return rounded * factors[:, None]


WRONG = {
    "points-lost": {
        "not paired": not_paired,
        "counts changed answers": changed_answers,
        "counts losses alone": only_losses,
        "the other way round": lambda before, after: points_lost(after, before),
        "a share, not points": lambda before, after: reach_of(points(before, after) / 100),
        "ddof=0": lambda before, after: reach_of(points(before, after), ddof=0),
        "standard deviation, not its error": lambda before, after: reach_of(
            points(before, after), root=False
        ),
        "one standard error": lambda before, after: reach_of(points(before, after), factor=1),
    },
    "scale-zero-point": {
        "widens nothing": not_widened,
        "widens only the lower end": only_low_widened,
        "widens only the upper end": only_high_widened,
        "256 steps": lambda low, high: grid_of(low, high, last=256),
        "zero point not rounded": lambda low, high: grid_of(low, high, whole=float),
        "zero point rounded down": lambda low, high: grid_of(low, high, whole=int),
        "a grid around 0": around_zero,
        "the other order": lambda low, high: scale_zero_point(low, high)[::-1],
    },
    "quantize": {
        "casts, and wraps around": wraps_around,
        "rounds down": rounds_down,
        "casts without rounding": casts_without_rounding,
        "clips before the shift": clips_before_the_shift,
        "takes the zero point off": lambda x, scale, zero_point: quantize(x, scale, -zero_point),
        "goes back to real numbers": lambda x, scale, zero: (
            scale * (quantize(x, scale, zero).astype(float) - zero)
        ),
        "ends at 254": lambda x, scale, zero_point: quantize(x, scale, zero_point).clip(0, 254),
    },
    "closest-scale": {
        "ends at the largest weight": no_clipping,
        "forgets to clip": errors_without_clipping,
        "has a grid of one bit more": one_step_too_many,
        "takes the largest weight with its sign": the_largest_not_in_size,
        "takes three standard deviations": three_standard_deviations,
        "returns the end of the grid": the_end_and_not_the_step,
        "tries five ends only": five_ends_only,
        "tries ends from 0.3 of the largest on": from_a_part_on(0.3),
        "stops where the error first rises": first_minimum,
    },
    "stretch": {
        "one factor for all rows": one_factor,
        "the factor turned over": turned_over,
        "by columns": by_columns,
        "the length of the row": same_length,
        "the least error": least_error,
        "0 / 0": zero_by_zero,
        "does nothing": lambda weights, rounded: rounded,
    },
}

RIGHT = {
    "points-lost": {
        "by counting": by_counting,
        "as an array": lambda before, after: np.array(points_lost(before, after)),
    },
    "scale-zero-point": {
        "by NumPy": by_numpy,
        "as a list": lambda low, high: list(scale_zero_point(low, high)),
    },
    "quantize": {
        "number by number": number_by_number,
        "with rint": lambda x, scale, zero: (
            (np.rint(x / scale) + zero).clip(0, 255).astype("uint8")
        ),
    },
    "closest-scale": {
        "by fitting the step to the integers": scale_by_regression,
        "in a loop": in_a_loop,
        "a hundred ends": from_a_part_on(0.01),
        "a hundred ends from a tenth on": from_a_part_on(0.1),
    },
    "stretch": {
        "row by row": row_by_row,
        "with einsum": with_einsum,
        "in an array of its own": lambda weights, rounded: stretch(weights, rounded).copy(),
    },
}
