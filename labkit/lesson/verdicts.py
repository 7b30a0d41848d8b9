"""Judge predictions and claims by the numbers of a run."""

import math
from typing import Any, NamedTuple

from labkit.errors import LessonError
from labkit.measure.stats import MIN_SAMPLES_TO_DECIDE

CLOSE = 1.25  # a prediction within this factor of the result counts as close
RIGHT = 1.1  # a prediction within this factor of the result counts as right
NOT_MEASURED = "not measured in this run"


class Bounds(NamedTuple):
    """The range in which the number of a claim has to lie; None: no bound on that side.

    at_least, at_most  bounds that belong to the range
    above, below       bounds that do not belong to the range
    """

    at_least: float | None = None
    at_most: float | None = None
    above: float | None = None
    below: float | None = None

    def verdict(self, low, high):
        """Return the verdict on an interval: "holds", "fails" or "inconclusive".

        The claim holds if the whole interval lies within the bounds. It fails if the whole interval
        lies beyond one of the bounds.
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
        """Return whether a number is within the lower bounds, `at_least` and `above`."""
        if self.at_least is not None and number < self.at_least:
            return False
        return self.above is None or number > self.above

    def _is_small_enough(self, number):
        """Return whether a number is within the upper bounds, `at_most` and `below`."""
        if self.at_most is not None and number > self.at_most:
            return False
        return self.below is None or number < self.below


class Evidence(NamedTuple):
    """The numbers by which a claim or a prediction is judged.

    value      an option, a number, or the point estimate of an interval; None: nothing was measured
    low, high  the interval that is judged. The interval of a ratio of timings has been widened on
               both sides by the noise floor
    floor      the noise floor of a ratio as a fraction; 0 for all other values
    doubt      why these numbers cannot decide a claim, wherever its bounds lie; None: they can
    basis      kind of interval and number of samples, such as "t, n = 3"; None for a kind without a
               name
    """

    value: float | str | None = None
    low: float | None = None
    high: float | None = None
    floor: float = 0.0
    doubt: str | None = None
    basis: str | None = None

    def numbers(self):
        """Return the fields of a ledger row that come from this evidence, as {field: value}.

        The fields are "value", "low", "high" and "basis".
        """
        return {"value": self.value, "low": self.low, "high": self.high, "basis": self.basis}


NOTHING = Evidence(doubt=NOT_MEASURED)


def weigh(value: Any) -> Evidence:
    """Return the `Evidence` that a measured value gives.

    value   an option (a text), a number, a `Ratio` or an `Interval`. None and NaN: not measured
    Raises  LessonError for a plain pair of numbers: an interval has to name its number of samples
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
    """Return the `Evidence` that a `Ratio` or an `Interval` gives.

    samples  number of samples
    kind     word for the samples, in a message: "pairs" or "samples"
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
    """Return the verdict on a prediction: "no answer", "right", "close", "off" or "open".

    A number is "right" within a factor of `RIGHT` of the result, "close" within a factor of
    `CLOSE`. An option is "right" or "off".

    The verdict is "open" where the run cannot judge the answer. Then there is no result, or there
    is a reason to doubt the result, or the answer is a number that is not right but lies inside the
    interval of the result.

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
    """Return (verdict, reason) of a claim.

    evidence  an `Evidence`
    bounds    a `Bounds`
    reason    why the evidence cannot decide; the verdict is then "inconclusive"
    returns   the verdict is "holds", "fails" or "inconclusive". The reason is a text that says why
              the claim stays open; None where the evidence decides
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
