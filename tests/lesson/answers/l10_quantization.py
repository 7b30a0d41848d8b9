"""Answers to the exercises of lesson 10: wrong ones that must be rejected, right ones written differently."""

import numpy as np

from labkit.lesson.exercises.l10_quantization import keep_in_fp16


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


def add_up_in_eight_bits(a, a_zero, b):
    return (a - np.uint8(a_zero)).astype(np.int8) @ b


def ignore_the_zero_point(a, a_zero, b):
    return a.astype(np.int32) @ b.astype(np.int32)


def add_up_in_sixteen_bits(a, a_zero, b):
    return (a.astype(np.int16) - np.int16(a_zero)) @ b.astype(np.int16)


def correct_by_the_whole_sum(a, a_zero, b):
    return a.astype(np.int32) @ b.astype(np.int32) - a_zero * b.astype(np.int32).sum()


def noisiest_first(layers, budget):
    kept, left = set(), sum(layer["noise"] for layer in layers)
    for layer in sorted(layers, key=lambda layer: -layer["noise"]):
        if left > budget:
            kept.add(layer["name"])
            left -= layer["noise"]
    return kept


def bargains_first(layers, budget):
    kept, left = set(), sum(layer["noise"] for layer in layers)
    for layer in sorted(layers, key=lambda layer: -layer["noise"] / layer["weights"]):
        if left > budget:
            kept.add(layer["name"])
            left -= layer["noise"]
    return kept


def keep_everything(layers, budget):
    return {layer["name"] for layer in layers}


def first_and_last(layers, budget):
    return {layers[0]["name"], layers[-1]["name"]}


def swap_the_sides(layers, budget):
    return {layer["name"] for layer in layers} - keep_in_fp16(layers, budget)


WRONG = {
    "quantize-dequantize": {
        "does not saturate": never_clip,
        "has no zero point": forget_the_zero_point,
        "leaves 0.0 between two grid points": leave_zero_off_the_grid,
        "rounds down": round_down,
        "only clips": keep_the_fraction,
    },
    "integer-product": {
        "adds up in 8 bits": add_up_in_eight_bits,
        "adds up in 16 bits": add_up_in_sixteen_bits,
        "ignores the zero point": ignore_the_zero_point,
        "corrects all columns by the sum of the whole matrix": correct_by_the_whole_sum,
    },
    "keep-in-fp16": {
        "takes the noisiest first, however large": noisiest_first,
        "takes the most noise per weight first": bargains_first,
        "keeps everything": keep_everything,
        "keeps the first and the last": first_and_last,
        "returns the layers to quantize": swap_the_sides,
    },
}

RIGHT = {
    "quantize-dequantize": {},
    "integer-product": {},
    "keep-in-fp16": {},
}
