"""Judge predictions and claims by the numbers of a run."""

import math
from typing import Any, NamedTuple

from labkit.errors import LessonError
from labkit.measure.stats import MIN_SAMPLES_TO_DECIDE

CLOSE = 1.25  # a prediction within this factor of the result counts as close
RIGHT = 1.1  # a prediction within this factor of the result counts as right
NOT_MEASURED = "not measured in this run"


class Bounds(NamedTuple):
    """The range in which a claim says that its number lies; None: no bound on that side.

    at_least, at_most  belong to the range
    above, below       do not belong to the range
    """

    at_least: float | None = None
    at_most: float | None = None
    above: float | None = None
    below: float | None = None

    def verdict(self, low, high):
        """Judge the interval from `low` to `high`: "holds", "fails" or "inconclusive".

        It holds where the whole interval lies within the bounds, and fails where the whole interval
        lies beyond one of them.
        """
        if self._is_large_enough(low) and self._is_small_enough(high):
            return "holds"
        if not math.isfinite(high - low):  # a single training: its interval has no end
            return "inconclusive"
        # no number of the interval is large enough, or none is small enough
        if not self._is_large_enough(high) or not self._is_small_enough(low):
            return "fails"
        return "inconclusive"

    def _is_large_enough(self, number):
        """Return whether a number is large enough for the lower bounds."""
        if self.at_least is not None and number < self.at_least:
            return False
        return self.above is None or number > self.above

    def _is_small_enough(self, number):
        """Return whether a number is small enough for the upper bounds."""
        if self.at_most is not None and number > self.at_most:
            return False
        return self.below is None or number < self.below


class Evidence(NamedTuple):
    """The numbers behind a claim or a result; None where nothing was measured, except `doubt`.

    value      an option, a number, or the point estimate of an interval
    low, high  the interval that is judged: of a ratio of timings, widened on both sides by the
               noise floor
    floor      the noise floor of the ratio as a fraction, 0 for all else
    doubt      why these numbers cannot decide a claim, wherever they lie; None: they can
    basis      the kind of interval and its sample size, such as "t, n = 3", where it has a name
    """

    value: float | str | None = None
    low: float | None = None
    high: float | None = None
    floor: float = 0.0
    doubt: str | None = None
    basis: str | None = None

    def numbers(self):
        """Return {field: value} for the fields that a ledger row takes from this evidence."""
        return {"value": self.value, "low": self.low, "high": self.high, "basis": self.basis}


NOTHING = Evidence(doubt=NOT_MEASURED)


def weigh(value: Any) -> Evidence:
    """Return the `Evidence` in an option, a number, a `Ratio` or an `Interval`.

    None and NaN count as not measured.

    Raises  LessonError for a bare pair of numbers, which does not say how many samples it rests on
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
            expected="a number, a Ratio, or an Interval(low, high, samples) of "
            "labkit.measure.stats",
            found=f"{value}, which may rest on two samples or on a thousand",
        )
    if samples is None:
        number = float(value)
        return NOTHING if math.isnan(number) else Evidence(number, number, number)
    return _weigh_interval(value, samples, kind)


def _weigh_interval(interval, samples, kind):
    """Return the `Evidence` in a `Ratio` or an `Interval`.

    samples  their number
    kind     their name: "pairs" or "samples"
    """
    low = float(interval.low)
    high = float(interval.high)
    if math.isnan(low) or math.isnan(high):
        return NOTHING
    middle = (low + high) / 2 if interval.median is None else float(interval.median)
    floor = getattr(interval, "floor", 0.0)

    # An interval of few samples decides nothing, wherever it lies; nor does one without an end.
    min_samples = getattr(interval, "min_samples", MIN_SAMPLES_TO_DECIDE)
    doubt = None
    if samples < min_samples:
        doubt = f"only {samples} of the {min_samples} {kind} that are needed"
    # an interval without an end is shown as its middle, or not at all where that is not finite
    if not math.isfinite(high - low):
        doubt = doubt or "its interval has no end"
        if not math.isfinite(middle):
            return Evidence(doubt=doubt)
        low = middle
        high = middle
        floor = 0.0
    return Evidence(
        value=middle,
        low=low / (1 + floor),
        high=high * (1 + floor),
        floor=floor,
        doubt=doubt,
        basis=getattr(interval, "basis", None) or None,
    )


def of_prediction(row):
    """Return the verdict on a revealed prediction: "no answer", "right", "close", "off" or "open".

    Only a number can be "close". The verdict is "open" where the run cannot judge the answer: there
    is no result, there is a reason to doubt it, or the answer is far from the result and still
    inside its interval.

    row  a `Prediction` with its result
    """
    if row.source == "default":
        return "no answer"
    if row.reason or row.result is None:
        return "open"
    try:
        guess = float(row.answer)
        result = float(row.result)
    except ValueError:  # an option
        return "right" if row.answer == row.result else "off"
    if guess == result:
        return "right"

    # Numbers are compared by their factor; of different signs they are infinitely far apart.
    factor = math.inf
    if guess * result > 0:
        factor = math.exp(abs(math.log(guess / result)))
    if factor > RIGHT and row.low is not None and row.low <= guess <= row.high:
        return "open"
    if factor <= RIGHT:
        return "right"
    return "close" if factor <= CLOSE else "off"


def of_claim(evidence, bounds, reason=None):
    """Return (verdict, why the claim stays open) of a claim.

    evidence  an `Evidence`
    bounds    a `Bounds`
    reason    why the number proves nothing, wherever it lies: the verdict is then "inconclusive"
    returns   "holds", "fails" or "inconclusive"; and a text, None where the evidence decides
    """
    if reason or evidence.doubt:
        return "inconclusive", reason or evidence.doubt
    verdict = bounds.verdict(evidence.low, evidence.high)
    verdict_without_floor = bounds.verdict(
        evidence.low * (1 + evidence.floor), evidence.high / (1 + evidence.floor)
    )
    # the verdict depends on the noise floor, by which the interval was widened
    if verdict != verdict_without_floor:
        return verdict, f"the same code twice differed by up to {100 * evidence.floor:.2g} % here"
    return verdict, None
