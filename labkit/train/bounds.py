"""Check the numbers of a `TrainConfig` against one table with the range of every numeric field."""

import math
from dataclasses import dataclass, fields
from numbers import Integral, Real

from labkit.errors import LabError, brief


@dataclass(frozen=True)
class Bounds:
    """An interval of numbers, from `lowest` to `highest`.

    ends  the brackets of the interval: "[" and "]" include the end, "(" and ")" exclude it
    """

    lowest: float
    highest: float
    ends: str = "[]"

    def __contains__(self, number):
        """Return whether a number lies in the interval; NaN never does."""
        low = self.lowest < number if self.ends[0] == "(" else self.lowest <= number
        high = number < self.highest if self.ends[1] == ")" else number <= self.highest
        return low and high  # NaN is neither

    def __str__(self):
        """Return the range in words, for an error."""
        low = "above" if self.ends[0] == "(" else "at least"
        high = "below" if self.ends[1] == ")" else "at most"
        return f"{low} {self.lowest:,} and {high} {self.highest:,}"


# The upper end of a range without a natural one: larger numbers are typing errors, or overflow
# float32.
MOST = 1_000_000
BOUNDS = {
    "epochs": Bounds(1, MOST),
    "batch": Bounds(1, MOST),
    "learning_rate": Bounds(0, MOST, "(]"),
    "weight_decay": Bounds(0, MOST),
    "momentum": Bounds(0, 1, "[)"),
    # torch's generator on a CPU reads the last 32 bits only: seeds 2**32 apart would be one and the
    # same
    "seed": Bounds(0, 2**32 - 1),
    "warmup_epochs": Bounds(0, MOST),
    "clip": Bounds(0, MOST, "(]"),
    "accumulate": Bounds(1, MOST),
    "label_smoothing": Bounds(0, 1, "[)"),
    "ghost_size": Bounds(1, MOST),
    "norm_momentum": Bounds(0, 1, "(]"),
    "ema": Bounds(0, 1, "[)"),
    "size": Bounds(8, 4096),
    "first_size": Bounds(8, 4096),
    "workers": Bounds(0, 1024),
}


def numbers_of(config):
    """Check the numbers of a `TrainConfig`, and return those with bounds: {field: int or float}.

    A number of NumPy becomes one of Python. Fields that are None are left out.

    Raises  LabError that names the first field whose number is out of range or not finite
    """
    numbers = {}
    for field in fields(config):
        value = getattr(config, field.name)
        bounds = BOUNDS.get(field.name)
        if bounds is not None and value is not None:
            is_integer = not isinstance(0.5, field.type)
            numbers[field.name] = _number(field.name, value, bounds, is_integer=is_integer)
        elif isinstance(value, float) and not math.isfinite(value):
            raise _refusal(field.name, value, "a finite number")
    return numbers


def _number(name, value, bounds, *, is_integer):
    """Return a value as an int or a float.

    name        name of the field, for the error
    is_integer  True: the field takes whole numbers only
    Raises      LabError unless the value is a number of that kind within the bounds
    """
    if not isinstance(value, Real):
        raise _refusal(name, value, "a number")
    if is_integer and not isinstance(value, Integral):
        raise _refusal(name, value, "a whole number")
    if value not in bounds:
        raise _refusal(name, value, str(bounds))
    return int(value) if is_integer else float(value)


def _refusal(name, value, expected):
    """Return the LabError for a field with a wrong value."""
    return LabError(
        f"{name} is {brief(value)}.",
        expected=expected,
        found=brief(value),
        fix="choose another value",
    )
