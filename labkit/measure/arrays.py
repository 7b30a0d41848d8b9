"""The arrays in what a function takes and returns, of torch and of NumPy alike."""

from collections.abc import Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from labkit.errors import MeasureError


@dataclass(frozen=True)
class Leaf:
    """One array of an output: where it was, what it was, and its values as float64."""

    place: str
    dtype: str
    values: np.ndarray


def leaves(output, place="the output"):
    """The arrays of a nested output, copied; one array in a list counts as the array."""
    if output is None:
        raise MeasureError(
            "A function returns nothing, so nobody can see whether it does the work.", fix="return its result"
        )
    if isinstance(output, Mapping):
        return [leaf for key, value in output.items() for leaf in leaves(value, f"output {key!r}")]
    if isinstance(output, (list, tuple)):
        if len(output) == 1:
            return leaves(output[0], place)
        return [leaf for index, value in enumerate(output) for leaf in leaves(value, f"output {index}")]
    if is_tensor(output):
        return [Leaf(place, str(output.dtype).removeprefix("torch."), output.detach().cpu().double().numpy().copy())]
    values = np.asarray(output)
    if values.dtype.kind not in "biuf":
        raise MeasureError(
            "An output cannot be compared.", expected="tensors, arrays or numbers", found=type(output).__name__
        )
    return [Leaf(place, str(values.dtype), np.array(values, dtype=float))]


def arrays(values):
    """The tensors and arrays in a nested value, themselves."""
    if is_tensor(values) or isinstance(values, np.ndarray):
        return [values]
    if isinstance(values, Mapping):
        values = values.values()
    elif not isinstance(values, (list, tuple)):
        return []
    return [array for value in values for array in arrays(value)]


def is_tensor(value):
    return hasattr(value, "untyped_storage")


def address(array):
    return array.data_ptr() if is_tensor(array) else array.ctypes.data


def writeable(array):
    if is_tensor(array):
        return array.is_contiguous() and array.numel() > 0
    return array.flags.writeable and array.size > 0


def reversed_values(array):
    """The same values in the opposite order: tokens stay tokens and images stay in range."""
    if is_tensor(array):
        return array.detach().flatten().flip(0).reshape(array.shape)
    return array.reshape(-1)[::-1].reshape(array.shape).copy()


def scrambled(array):
    """Values no computation gives: NaN, or for whole numbers each moved by one."""
    if is_tensor(array):
        real = array.is_floating_point() or array.is_complex()
        return array.detach() * float("nan") if real else array.detach() == 0
    return array * np.nan if array.dtype.kind in "fc" else array == 0


@contextmanager
def changed(array, values):
    """Put other values into the array's memory, and its own back at the end."""
    kept = array.detach().clone() if is_tensor(array) else array.copy()
    write(array, values)
    try:
        yield
    finally:
        write(array, kept)


def write(array, values):
    if is_tensor(array):
        import torch

        with torch.inference_mode():
            array.copy_(values)
    else:
        array[...] = values
