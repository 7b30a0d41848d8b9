"""The verdicts on predictions and claims."""

import inspect
import math
from typing import NamedTuple

from labkit.errors import LessonError
from labkit.measure.stats import FEWEST

CLOSE = 1.25  # a prediction within this factor of the result counts as close
RIGHT = 1.1  # and within this one as right
NOT_MEASURED = "not measured in this run"


class Evidence(NamedTuple):
    """The numbers that a claim or a result rests on; all None but `doubt` when nothing was measured.

    value      an option, a number, or the point estimate of an interval
    low, high  the interval that gets the verdict: a ratio of timings with its noise floor on both sides
    floor      that noise floor, 0 without one
    doubt      why it decides nothing, wherever it lies
    basis      what the interval rests on, where its kind has a name: "t, n = 3"
    """

    value: float | str | None = None
    low: float | None = None
    high: float | None = None
    floor: float = 0.0
    doubt: str | None = None
    basis: str | None = None

    def numbers(self):
        """{field: value} of the rows that rest on it."""
        return {"value": self.value, "low": self.low, "high": self.high, "basis": self.basis}


NOTHING = Evidence(doubt=NOT_MEASURED)


def weigh(value):
    """The `Evidence` in an option, a number, a `Ratio` or an `Interval`; None and NaN are no evidence.

    Raises  LessonError for a bare pair of numbers: it does not say how many samples stand behind it
    """
    if value is None:
        return NOTHING
    if isinstance(value, str):
        return Evidence(value)
    kind = "pairs" if hasattr(value, "pairs") else "samples"
    samples = getattr(value, kind, None)
    if samples is None and isinstance(value, (tuple, list)):
        raise LessonError(
            "An interval carries the number of its samples.",
            expected="a number, a Ratio, or an Interval(low, high, samples) of labkit.measure.stats",
            found=f"{value}, which may rest on two samples or on a thousand",
        )
    if samples is None:
        number = float(value)
        return NOTHING if math.isnan(number) else Evidence(number, number, number)
    low, high, floor = float(value.low), float(value.high), getattr(value, "floor", 0.0)
    if math.isnan(low) or math.isnan(high):
        return NOTHING
    middle = (low + high) / 2 if value.median is None else float(value.median)
    if not math.isfinite(high - low):  # too few samples for an interval: one number, which decides nothing
        low, high, floor = middle, middle, 0.0
    fewest = getattr(value, "fewest", FEWEST)
    return Evidence(
        value=middle,
        low=low / (1 + floor),
        high=high * (1 + floor),
        floor=floor,
        doubt=None if samples >= fewest else f"only {samples} of the {fewest} {kind} that are needed",
        basis=getattr(value, "basis", None) or None,
    )


def of_prediction(row):
    """The verdict on a revealed prediction: "no answer", "right", "close" (numbers only) or "off".

    "open" when there is no result, or a reason to doubt it, or when its interval allows the answer.
    """
    if row.source == "default":
        return "no answer"
    if row.reason or row.result is None:
        return "open"
    try:
        guess, truth = float(row.answer), float(row.result)
    except ValueError:
        return "right" if row.answer == row.result else "off"
    if guess == truth:
        return "right"
    factor = math.exp(abs(math.log(guess / truth))) if guess * truth > 0 else math.inf
    if factor > RIGHT and row.low is not None and row.low <= guess <= row.high:
        return "open"
    return "right" if factor <= RIGHT else "close" if factor <= CLOSE else "off"


def of_claim(found, holds_if, reason=None):
    """(verdict, why it stays open or None) of a claim on this `Evidence`; a `reason` given keeps it open."""
    if reason or found.doubt:
        return "inconclusive", reason or found.doubt
    widened = _of_interval(found.low, found.high, holds_if)
    if widened != _of_interval(found.low * (1 + found.floor), found.high / (1 + found.floor), holds_if):
        return widened, f"the same code twice differed by up to {100 * found.floor:.2g} % here"
    return widened, None


def _of_interval(low, high, holds_if):
    """ "holds", "fails" or "inconclusive": what holds for all of it holds, what holds nowhere in it fails."""
    one = len(inspect.signature(holds_if).parameters) == 1

    def holds(a, b):
        return bool(holds_if(a) and holds_if(b)) if one else bool(holds_if(a, b))

    if holds(low, high):
        return "holds"
    if not math.isfinite(high - low):  # a single training allows anything
        return "inconclusive"
    return "inconclusive" if any(holds(point, point) for point in _points(low, high)) else "fails"


def _points(low, high):
    """Numbers from `low` to `high`: evenly spaced, and in equal ratios, which find 0.5 to 2 within 0.001 to 1,000."""
    import numpy as np

    ratios = np.geomspace(1, 1e-6, 61) * max(abs(low), abs(high))
    return [*np.linspace(low, high, 21), *(number for number in (*ratios, *-ratios) if low <= number <= high)]
