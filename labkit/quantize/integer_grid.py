"""Quantization by hand: real numbers on a grid of a few integers.

    real = scale * (integer - zero_point)

`scale` is the step of the grid, `zero_point` the integer that stands for 0.0. A symmetric grid has
zero_point = 0 and signed integers (-128 to 127 at 8 bits). An asymmetric grid has unsigned integers
(0 to 255) and spends all of them on low..high. This pays after a ReLU, where nothing is negative.
On both grids 0.0 is a grid point, so that a padded border stays exactly zero.

Everything here is NumPy and computes what ONNX's QuantizeLinear and DequantizeLinear compute.
Source  Jacob et al. 2017, arXiv:1712.05877; Krishnamoorthi 2018, arXiv:1806.08342
"""

from typing import Any

import numpy as np

from labkit.errors import LabError


def integer_range(bits=8, *, symmetric=True):
    """Return (lowest, highest) integer of the grid: (-128, 127) or (0, 255) at 8 bits."""
    if not 2 <= bits <= 16:
        raise LabError(
            f"A grid of {bits} bits cannot be made.",
            expected="2 to 16",
            found=bits,
            fix="8 is usual",
        )
    if symmetric:
        return -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    return 0, 2**bits - 1


def scale_zero_point(low: Any, high: Any, *, bits: int = 8, symmetric: bool = True) -> tuple:
    """Return (scale, zero_point) of the grid that covers the values from `low` to `high`.

    low, high  numbers, or arrays (C,) for one grid per channel; the range is widened to contain 0.0
    returns    float32 scales above 0 and int32 zero points, shaped like `low`

    A range of -1 to 3 at 8 bits has the scale 3 / 127 if symmetric, else 4 / 255 and the zero point
    64.
    """
    low = np.minimum(np.float32(low), 0)
    high = np.maximum(np.float32(high), 0)
    lowest, highest = integer_range(bits, symmetric=symmetric)
    if symmetric:
        # -128 has no mirror image, so the range ends at 127 on both sides.
        scale = np.maximum(-low, high) / highest
        scale = np.where(scale > 0, scale, 1)  # a tensor of zeros fits on any grid
        zero_point = np.zeros_like(low)
    else:
        scale = (high - low) / (highest - lowest)
        scale = np.where(scale > 0, scale, 1)
        zero_point = np.rint(-low / scale)
    return scale.astype(np.float32), zero_point.astype(np.int32)


def value_range(x: Any, axis: int | None = None) -> tuple:
    """Return (low, high) of all values of x, or of each channel (C,) along `axis`."""
    if axis is None:
        return np.min(x), np.max(x)
    channel_axis = axis % np.ndim(x)
    reduced_axes = tuple(dimension for dimension in range(np.ndim(x)) if dimension != channel_axis)
    return np.min(x, axis=reduced_axes), np.max(x, axis=reduced_axes)


def quantize(
    x: Any,
    scale: Any,
    zero_point: Any = 0,
    *,
    bits: int = 8,
    symmetric: bool = True,
    axis: int | None = None,
) -> np.ndarray:
    """Turn real numbers into integers of a grid.

    Each number is rounded to the nearest grid point (ties to even). Numbers beyond the grid
    become its outermost point.

    x                  floats of any shape
    scale, zero_point  numbers, or (C,) for the channels along `axis` of x
    returns            int8, int16, uint8 or uint16, the smallest type that holds the grid
    """
    lowest, highest = integer_range(bits, symmetric=symmetric)
    scale = per_channel(scale, x, axis)
    zero_point = per_channel(zero_point, x, axis)
    integers = np.rint(np.asarray(x, np.float32) / scale) + zero_point
    integers = np.clip(integers, lowest, highest)

    width = 8 if bits <= 8 else 16
    return integers.astype(f"int{width}" if symmetric else f"uint{width}")


def dequantize(integers, scale, zero_point=0, *, axis=None):
    """Turn integers back into float32: scale * (integers - zero_point)."""
    scale = per_channel(scale, integers, axis)
    zero_point = per_channel(zero_point, integers, axis)
    return (integers.astype(np.int32) - zero_point).astype(np.float32) * scale


def per_channel(values, x, axis):
    """Reshape values (C,) so that they broadcast along `axis` of x.

    For images and axis 1, (C,) becomes (1, C, 1, 1). A single number, or values without an axis,
    are returned unchanged.
    """
    values = np.asarray(values)
    if axis is None or values.ndim == 0:
        return values
    shape = [1] * np.ndim(x)
    shape[axis] = -1
    return values.reshape(shape)


def sqnr_db(exact: Any, approximate: Any) -> float:
    """Return the signal-to-quantization-noise ratio in decibels; infinite if nothing is lost.

    This is 10 log10(power of the exact values / power of the error). One more bit halves the step
    and adds 6.02 dB.
    """
    exact = np.asarray(exact, np.float64)
    approximate = np.asarray(approximate, np.float64)
    signal = np.mean(exact**2)
    noise = np.mean((exact - approximate) ** 2)
    if noise > 0:
        return float(10 * np.log10(signal / noise))
    return float("inf")
