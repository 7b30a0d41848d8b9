"""Answers to the exercises of lesson 12: wrong ones that must be rejected, right ones written differently."""

import numpy as np
import torch

from labkit.lesson.exercises.l12_quantization import keep_in_fp16, quantize_dequantize


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


def in_steps_of_uint8(x, low, high):
    low, high = np.minimum(low, 0), np.maximum(high, 0)
    scale = (high - low) / 255
    zero = np.rint(-low / scale)
    q = np.rint(x / scale + zero).clip(0, 255).astype(np.uint8)
    return (q.astype(np.float64) - zero) * scale


def number_by_number(x, low, high):
    low, high = min(0.0, low), max(0.0, high)
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


def by_bits(layers, budget):
    best, fewest = None, None
    for bits in range(2 ** len(layers)):
        kept = [layer for place, layer in enumerate(layers) if bits >> place & 1]
        left = sum(layer["noise"] for layer in layers if layer not in kept)
        weights = sum(layer["weights"] for layer in kept)
        if left <= budget and (best is None or weights < fewest):
            best, fewest = kept, weights
    return [layer["name"] for layer in best]


def layer_by_layer(layers, budget):
    def best(rest, budget):
        if not rest:
            return (0, ()) if budget >= 0 else None
        first, *others = rest
        found = []
        kept = best(others, budget)
        if kept:
            found.append((kept[0] + first["weights"], (*kept[1], first["name"])))
        quantized = best(others, budget - first["noise"]) if first["noise"] <= budget else None
        if quantized:
            found.append(quantized)
        return min(found) if found else None

    return frozenset(best(layers, budget)[1])


def never_ends(layers, budget):
    while True:
        yield layers[0]["name"]


def moved_the_wrong_way(bias, wanted, found):
    return bias - (wanted - found).mean((0, 2, 3))


def only_what_is_missing(bias, wanted, found):
    return (wanted - found).mean((0, 2, 3))


def one_mean_for_all_channels(bias, wanted, found):
    return bias + (wanted - found).mean()


def mean_over_the_images_only(bias, wanted, found):
    return bias + (wanted - found).mean(0)[:, 0, 0]


def sum_of_the_differences(bias, wanted, found):
    return bias + (wanted - found).sum((0, 2, 3))


def size_of_the_differences(bias, wanted, found):
    return bias + np.abs(wanted - found).mean((0, 2, 3))


def channel_by_channel(bias, wanted, found):
    return np.array([each + (wanted[:, c] - found[:, c]).mean() for c, each in enumerate(bias)])


def difference_of_two_means(bias, wanted, found):
    _images, channels, *_ = wanted.shape
    means = [np.moveaxis(each, 1, 0).reshape(channels, -1).mean(1) for each in (wanted, found)]
    return bias + means[0] - means[1]


def rounded_with_its_true_derivative(x, scale, top):
    return (x / scale).round().clamp(-top, top) * scale


def no_saturation(x, scale, top):
    steps = x / scale
    return (steps + (steps.round() - steps).detach()) * scale


def a_gradient_beyond_the_ends(x, scale, top):
    return x + ((x / scale).round().clamp(-top, top) * scale - x).detach()


def saturated_before_it_is_detached(x, scale, top):
    return ((x / scale).round().clamp(-top, top) * scale).detach()


def a_gradient_in_steps(x, scale, top):
    steps = x.detach() / scale
    on_the_grid = steps.round().clamp(-top, top) * scale
    inside = (steps.abs() <= top).float()
    return on_the_grid + (x - x.detach()) * inside / scale


def rounded_down(x, scale, top):
    steps = x / scale
    return (steps + (steps.floor() - steps).detach()).clamp(-top, top) * scale


def one_scale_for_all(x, scale, top):
    scale = torch.as_tensor(scale).max()
    steps = x / scale
    return (steps + (steps.round() - steps).detach()).clamp(-top, top) * scale


class _Straight(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale, top):
        ctx.save_for_backward((x / scale).abs() <= top)
        return (x / scale).round().clamp(-top, top) * scale

    @staticmethod
    def backward(ctx, gradient):
        return gradient * ctx.saved_tensors[0], None, None


def as_an_autograd_function(x, scale, top):
    return _Straight.apply(x, scale, top)


def clamped_first(x, scale, top):
    limit = top * torch.as_tensor(scale)
    inside = torch.minimum(torch.maximum(x, -limit), limit)
    return inside + ((inside / scale).round() * scale - inside).detach()


def with_a_mask(x, scale, top):
    steps = x / scale
    value = steps.detach().round().clamp(-top, top) * scale
    return torch.where(steps.abs() <= top, x + (value - x).detach(), value + 0 * x)


def empty_the_list(layers, budget):
    kept = keep_in_fp16(layers, budget)
    layers.clear()
    return kept


WRONG = {
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
    "keep-in-fp16": {
        "never ends": never_ends,
        "takes the noisiest first, however large": noisiest_first,
        "takes the most noise per weight first": bargains_first,
        "keeps everything": keep_everything,
        "keeps the first and the last": first_and_last,
        "returns the layers to quantize": swap_the_sides,
        "empties the list": empty_the_list,
    },
    "corrected-bias": {
        "moves the wrong way": moved_the_wrong_way,
        "forgets the old bias": only_what_is_missing,
        "has one mean for all channels": one_mean_for_all_channels,
        "looks at one pixel": mean_over_the_images_only,
        "adds up instead of taking the mean": sum_of_the_differences,
        "takes absolute differences": size_of_the_differences,
    },
    "straight-through": {
        "has the true derivative, which is 0": rounded_with_its_true_derivative,
        "does not saturate": no_saturation,
        "has a gradient beyond the ends": a_gradient_beyond_the_ends,
        "detaches everything": saturated_before_it_is_detached,
        "divides the gradient by the scale": a_gradient_in_steps,
        "rounds down": rounded_down,
        "takes one scale for all channels": one_scale_for_all,
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


WRONG["quantize-dequantize"] |= {
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


def masked(where, dtype=None):
    def answer(x, scale, top):
        x = x.to(dtype or x.dtype)
        inside = x * where(x / scale, top)
        return inside + ((x / scale).round().clamp(-top, top) * scale - inside).detach()

    return answer


WRONG["straight-through"] |= {
    "a mask after rounding": masked(lambda steps, top: steps.round().abs() <= top),
    "a mask one step too wide": masked(lambda steps, top: steps.abs() <= top + 1),
    "float32": masked(lambda steps, top: steps.abs() <= top, torch.float32),
}

RIGHT = {
    "quantize-dequantize": {
        "through uint8": in_steps_of_uint8,
        "number by number": number_by_number,
    },
    "integer-product": {
        "in int64": in_int64,
        "with the zero point taken off afterwards": corrected_afterwards,
    },
    "keep-in-fp16": {
        "by bits": by_bits,
        "layer by layer": layer_by_layer,
    },
    "corrected-bias": {
        "channel by channel": channel_by_channel,
        "as the difference of two means": difference_of_two_means,
    },
    "straight-through": {
        "as an autograd.Function": as_an_autograd_function,
        "clamped first": clamped_first,
        "with a mask": with_a_mask,
    },
}
