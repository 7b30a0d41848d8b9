"""Quantization by hand: real numbers on a grid of a few integers.

    real = scale * (integer - zero)

`scale` is the step of the grid, `zero` the integer that stands for 0.0. A symmetric grid has zero = 0 and signed
integers (-128 to 127 at 8 bits); an asymmetric one has unsigned integers (0 to 255) and spends all of them on
low..high, which pays after a ReLU, where nothing is negative. 0.0 always lies on the grid: a padded border stays
exactly zero.

Everything here is NumPy and computes what ONNX's QuantizeLinear and DequantizeLinear compute.
Source  Jacob et al. 2017, arXiv:1712.05877; Krishnamoorthi 2018, arXiv:1806.08342
"""

from typing import Any

import numpy as np

from labkit.errors import LabError


def limits(bits=8, *, symmetric=True):
    """(lowest, highest) integer of the grid: (-128, 127) or (0, 255) at 8 bits."""
    if not 2 <= bits <= 16:
        raise LabError(f"A grid of {bits} bits cannot be made.", expected="2 to 16", found=bits, fix="8 is usual")
    return (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if symmetric else (0, 2**bits - 1)


def scale_zero_point(low: Any, high: Any, *, bits: int = 8, symmetric: bool = True) -> tuple:
    """The grid that covers the values from `low` to `high`.

    low, high  numbers, or arrays (C,) for one grid per channel; they are widened to contain 0.0
    returns    (scale, zero): float32 above 0 and int32, shaped as `low`
    """
    low, high = np.minimum(np.float32(low), 0), np.maximum(np.float32(high), 0)
    smallest, largest = limits(bits, symmetric=symmetric)
    if symmetric:  # -128 has no mirror image: the range ends at 127 on both sides
        scale, zero = np.maximum(-low, high) / largest, np.zeros_like(low)
    else:
        scale = (high - low) / (largest - smallest)
        zero = np.rint(-low / np.where(scale > 0, scale, 1))
    scale = np.where(scale > 0, scale, 1)  # a tensor of zeros fits on any grid
    return scale.astype(np.float32), zero.astype(np.int32)


def value_range(x: Any, axis: int | None = None) -> tuple:
    """(low, high) of all values, or of each channel (C,) along `axis`."""
    others = None if axis is None else tuple(d for d in range(np.ndim(x)) if d != axis % np.ndim(x))
    return np.min(x, axis=others), np.max(x, axis=others)


def quantize(
    x: Any, scale: Any, zero: Any = 0, *, bits: int = 8, symmetric: bool = True, axis: int | None = None
) -> np.ndarray:
    """Real numbers to integers: round to the nearest grid point (ties to even), saturate at the ends.

    x            floats of any shape
    scale, zero  numbers, or (C,) with the `axis` of x they belong to
    returns      int8, int16, uint8 or uint16, the smallest that holds the grid
    """
    smallest, largest = limits(bits, symmetric=symmetric)
    steps = np.rint(np.asarray(x, np.float32) / along(scale, x, axis)) + along(zero, x, axis)
    return np.clip(steps, smallest, largest).astype(f"{'' if symmetric else 'u'}int{8 if bits <= 8 else 16}")


def dequantize(q, scale, zero=0, *, axis=None):
    """Integers back to float32: scale * (q - zero)."""
    return (q.astype(np.int32) - along(zero, q, axis)).astype(np.float32) * along(scale, q, axis)


def along(values, x, axis):
    """Numbers of the channels, shaped to meet dimension `axis` of x."""
    values = np.asarray(values)
    if axis is None or values.ndim == 0:
        return values
    shape = [1] * np.ndim(x)
    shape[axis] = -1
    return values.reshape(shape)


def round_trip(
    x: Any, *, bits: int = 8, symmetric: bool = True, axis: int | None = None, clip: Any = None
) -> np.ndarray:
    """x as it comes back from the grid: quantized and dequantized.

    axis  a grid for each channel along this axis; None: one for all
    clip  saturate beyond -clip..clip, so that the values inside get a finer grid; None: cover all values
    """
    low, high = value_range(x, axis)
    if clip is not None:
        low, high = np.maximum(low, -clip), np.minimum(high, clip)
    scale, zero = scale_zero_point(low, high, bits=bits, symmetric=symmetric)
    return dequantize(quantize(x, scale, zero, bits=bits, symmetric=symmetric, axis=axis), scale, zero, axis=axis)


def sqnr_db(exact: Any, approximate: Any) -> float:
    """Signal to quantization noise in decibels: 10 log10 of the power of the values over the power of the error.

    One more bit halves the step and adds 6.02 dB; infinite when nothing is lost.
    """
    exact = np.asarray(exact, np.float64)
    noise = np.mean((exact - np.asarray(approximate, np.float64)) ** 2)
    signal = np.mean(exact**2)
    return float(10 * np.log10(signal / noise)) if noise > 0 else float("inf")
