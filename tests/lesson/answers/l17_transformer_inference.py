"""Answers to the exercise of lesson 17: wrong ones that must be rejected, right ones written differently."""

import numpy as np
import torch

from labkit.lesson.exercises import l17_transformer_inference as lesson


def in_float(x, weight, scales, bias):
    whole = weight * np.repeat(scales, weight.shape[1] // scales.shape[1], axis=1)
    return (x @ whole.T + bias).astype(np.float32)


def by_block(x, weight, scales, bias, *, steps, kind=np.int32):
    """The sum of the blocks' products; `steps` makes (N, 1) steps of the numbers of a block (N, K)."""
    total = np.zeros((len(x), len(weight)), np.float64)
    size = x.shape[1] // scales.shape[1]
    for block in range(scales.shape[1]):
        part = slice(block * size, block * size + size)
        step = steps(x[:, part])
        integers = np.rint(x[:, part] / step).astype(kind)
        total += (integers @ weight[:, part].T.astype(kind)) * step * scales[:, block]
    return (total + bias).astype(np.float32)


def of_each_row(x):
    step = np.abs(x).max(1, keepdims=True) / 127
    return np.where(step > 0, step, 1)


def one_grid_per_block_of_all_rows(x, weight, scales, bias):
    return by_block(x, weight, scales, bias, steps=lambda part: max(np.abs(part).max() / 127, 1e-9))


def one_grid_per_row(x, weight, scales, bias):
    step = of_each_row(x)
    return by_block(x, weight, scales, bias, steps=lambda part: step)


def forget_the_sign(x, weight, scales, bias):
    return by_block(x, weight, scales, bias, steps=lambda part: np.maximum(part.max(1, keepdims=True) / 127, 1e-9))


def add_up_in_sixteen_bits(x, weight, scales, bias):
    return by_block(x, weight, scales, bias, steps=of_each_row, kind=np.int16)


def steps_of_255(x, weight, scales, bias):
    return by_block(x, weight, scales, bias, steps=lambda part: of_each_row(part) * (127 / 255))


def small_steps_as_one(x, weight, scales, bias):
    """A step below a millionth becomes 1, and its numbers 0."""
    return by_block(
        x, weight, scales, bias, steps=lambda part: np.where(of_each_row(part) < 1e-6, 1, of_each_row(part))
    )


def cut_off_the_fraction(x, weight, scales, bias):
    return by_block(np.trunc(x / 0.05) * 0.05, weight, scales, bias, steps=of_each_row)


def forget_the_bias(x, weight, scales, bias):
    return lesson.block_linear(x, weight, scales, 0 * bias)


def block_by_block(x, weight, scales, bias):
    return by_block(x, weight, scales, bias, steps=of_each_row)


def by_torch(x, weight, scales, bias):
    blocks = scales.shape[1]
    parts = torch.from_numpy(x).unflatten(1, (blocks, -1)).transpose(0, 1)  # (blocks, N, K / blocks)
    steps = parts.abs().amax(2, keepdim=True) / 127
    steps[steps == 0] = 1
    weights = torch.from_numpy(np.asarray(weight, np.int32)).unflatten(1, (blocks, -1)).permute(1, 2, 0)
    sums = (parts / steps).round().int() @ weights  # (blocks, N, M)
    scaled = sums * steps * torch.from_numpy(scales).T[:, None]
    return (scaled.sum(0) + torch.from_numpy(bias)).numpy().astype(np.float32)


WRONG = {
    "block-linear": {
        "in float": in_float,
        "one grid per block of all rows": one_grid_per_block_of_all_rows,
        "one grid per row": one_grid_per_row,
        "the largest instead of the largest absolute value": forget_the_sign,
        "sums in 16 bits": add_up_in_sixteen_bits,
        "steps for 255": steps_of_255,
        "input rounded down": cut_off_the_fraction,
        "bias forgotten": forget_the_bias,
        "steps below a millionth become 1": small_steps_as_one,
    },
}
RIGHT = {"block-linear": {"block by block": block_by_block, "by torch": by_torch}}
