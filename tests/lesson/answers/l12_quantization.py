"""Answers to the exercises of lesson 12: wrong ones that must be rejected, right ones written differently."""

import numpy as np

from labkit.lesson.exercises.l12_quantization import closest_scale, quantize_dequantize


def never_clip(x, low, high):
    low, high = min(low, 0.0), max(high, 0.0)
    scale = (high - low) / 255
    return np.round(np.asarray(x) / scale) * scale


def forget_the_zero_point(x, low, high):
    scale = (high - low) / 255
    return np.clip(np.round(x / scale), 0, 255) * scale


def leave_zero_off_the_grid(x, low, high):
    scale = (high - low) / 255
    return np.clip(np.round((x - low) / scale), 0, 255) * scale + low


def round_down(x, low, high):
    low, high = min(low, 0.0), max(high, 0.0)
    scale = (high - low) / 255
    zero = round(-low / scale)
    return (np.clip(np.floor(x / scale) + zero, 0, 255) - zero) * scale


def keep_the_fraction(x, low, high):
    return np.clip(x, min(low, 0.0), max(high, 0.0))


def widen_nothing(x, low, high):
    scale = (high - low) / 255
    zero = round(-low / scale)
    return (np.clip(np.round(x / scale) + zero, 0, 255) - zero) * scale


def widen_only_low(x, low, high):
    return widen_nothing(x, min(low, 0.0), high)


def widen_only_high(x, low, high):
    return widen_nothing(x, low, max(high, 0.0))


def add_up_in_eight_bits(a, a_zero, b):
    return (a - np.uint8(a_zero)).astype(np.int8) @ b


def ignore_the_zero_point(a, a_zero, b):
    return a.astype(np.int32) @ b.astype(np.int32)


def add_up_in_sixteen_bits(a, a_zero, b):
    return (a.astype(np.int16) - np.int16(a_zero)) @ b.astype(np.int16)


def correct_by_the_whole_sum(a, a_zero, b):
    return a.astype(np.int32) @ b.astype(np.int32) - a_zero * b.astype(np.int32).sum()


def in_steps_of_uint8(x, low, high):
    low, high = np.minimum(low, 0), np.maximum(high, 0)
    scale = max((high - low) / 255, 1e-9)
    zero = np.rint(-low / scale)
    q = np.rint(x / scale + zero).clip(0, 255).astype(np.uint8)
    return (q.astype(np.float64) - zero) * scale


def number_by_number(x, low, high):
    low, high = min(0.0, low), max(0.0, high)
    if low == high:
        return np.zeros_like(x)
    scale = (high - low) / 255
    zero = round(-low / scale)
    back = []
    for value in x.flat:
        q = min(255, max(0, round(value / scale) + zero))
        back.append((q - zero) * scale)
    return np.array(back).reshape(x.shape)


def a_cast_that_wraps(x, low, high):
    low, high = min(low, 0.0), max(high, 0.0)
    scale = (high - low) / 255
    zero = round(-low / scale)
    q = (np.round(x / scale) + zero).astype(np.int64).astype(np.uint8)
    return (q.astype(float) - zero) * scale


def beyond_the_range_is_0(x, low, high):
    return np.where((x < low) | (x > high), 0.0, quantize_dequantize(x, low, high))


def through_float32(a, a_zero, b):
    return ((a.astype(np.float32) - a_zero) @ b.astype(np.float32)).astype(np.int32)


def in_int64(a, a_zero, b):
    return np.einsum("ik,kj->ij", a.astype(np.int64) - a_zero, b.astype(np.int64))


def corrected_afterwards(a, a_zero, b):
    wide = b.astype(np.int32)
    return a.astype(np.int32) @ wide - a_zero * wide.sum(axis=0)


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
    for share in np.linspace(0.05, 1, 150):  # round, then fit the step to the integers; again and again
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


WRONG = {
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
    "quantize-dequantize": {
        "casts, and wraps around": a_cast_that_wraps,
        "takes what lies beyond the range for 0": beyond_the_range_is_0,
        "does not saturate": never_clip,
        "has no zero point": forget_the_zero_point,
        "leaves 0.0 between two grid points": leave_zero_off_the_grid,
        "rounds down": round_down,
        "only clips": keep_the_fraction,
        "widens nothing": widen_nothing,
        "widens only the lower end": widen_only_low,
        "widens only the upper end": widen_only_high,
    },
    "integer-product": {
        "multiplies in float32": through_float32,
        "adds up in 8 bits": add_up_in_eight_bits,
        "adds up in 16 bits": add_up_in_sixteen_bits,
        "ignores the zero point": ignore_the_zero_point,
        "corrects all columns by the sum of the whole matrix": correct_by_the_whole_sum,
    },
}


def on_a_grid(x, low, high, *, last=255, whole=np.round):
    low, high = min(low, 0), max(high, 0)
    step = (high - low) / last
    zero = whole(-low / step)
    return step * (np.clip(np.round(x / step) + zero, 0, last) - zero)


def zero_by_hand(x, low, high):
    low, high = min(low, 0), max(high, 0)
    step = (high - low) / 255
    return np.where(x == 0, 0, low + np.round((np.clip(x, low, high) - low) / step) * step)


def zero_over_zero(x, low, high):
    low, high = min(low, 0.0), max(high, 0.0)
    scale = np.float64(high - low) / 255
    zero = np.round(-low / scale)
    return (np.clip(np.round(x / scale) + zero, 0, 255) - zero) * scale


def the_integers(x, low, high):
    low, high = min(low, 0.0), max(high, 0.0)
    return np.clip(np.round(x / (high - low) * 255) + round(-low / (high - low) * 255), 0, 255)


WRONG["quantize-dequantize"] |= {
    "0 / 0": zero_over_zero,
    "0 / 0, in Python": lambda *given: on_a_grid(*given, whole=round),
    "the integers": the_integers,
    "the zero point not rounded": lambda *given: on_a_grid(*given, whole=lambda zero: zero),
    "the zero point rounded down": lambda *given: on_a_grid(*given, whole=np.floor),
    "257 values": lambda *given: on_a_grid(*given, last=256),
    "255 values": lambda *given: on_a_grid(*given, last=254),
    "flat": lambda *given: on_a_grid(*given).ravel(),
    "0.0 put in by hand": zero_by_hand,
}
WRONG["integer-product"] |= {
    "sums of columns in int16": lambda a, zero, b: (
        a.astype(np.int32) @ b.astype(np.int32) - zero * b.sum(0, dtype=np.int16).astype(np.int32)
    ),
}


RIGHT = {
    "closest-scale": {
        "by fitting the step to the integers": scale_by_regression,
        "in a loop": in_a_loop,
        "a hundred ends": from_a_part_on(0.01),
        "a hundred ends from a tenth on": from_a_part_on(0.1),
    },
    "quantize-dequantize": {
        "through uint8": in_steps_of_uint8,
        "number by number": number_by_number,
    },
    "integer-product": {
        "in int64": in_int64,
        "with the zero point taken off afterwards": corrected_afterwards,
    },
}
