"""How a prediction and a claim are judged."""

import inspect
import math

from labkit.measure.stats import quantile_floor

CLOSE = 1.25  # a prediction within this factor of the result counts as close
RIGHT = 1.1  # and within this one as right


def judge(answer, result, low=None, high=None):
    """ "right", "close" (numbers only) or "off"; "open" when there is no result, or its interval allows the answer."""
    if result is None:
        return "open"
    try:
        guess, truth = float(answer), float(result)
    except ValueError:
        return "right" if answer == result else "off"
    if guess == truth:
        return "right"
    factor = math.exp(abs(math.log(guess / truth))) if guess * truth > 0 else math.inf
    if factor > RIGHT and low is not None and low <= guess <= high:
        return "open"
    return "right" if factor <= RIGHT else "close" if factor <= CLOSE else "off"


def interval(value):
    """(low, high) of a number or an interval as floats; (None, None) when unknown."""
    if value is None:
        return None, None
    if hasattr(value, "low"):
        value = (value.low, value.high)
    low, high = map(float, value if isinstance(value, tuple) else (value, value))
    return (None, None) if math.isnan(low) or math.isnan(high) else (low, high)


def middle(value, low, high):
    """The point estimate of an interval: its own median if it has one."""
    return float(getattr(value, "median", (low + high) / 2))


def widened(value):
    """The interval to judge: that of a ratio of timings, further apart by what two identical arms differed in."""
    low, high = interval(value)
    floor = getattr(value, "floor", None) or 0.0
    return (low, high) if low is None else (low / (1 + floor), high * (1 + floor))


def doubt(value):
    """Why a ratio of timings proves nothing, or None."""
    fewest, pairs = quantile_floor(0.5), getattr(value, "pairs", None)
    if pairs is not None and pairs < fewest:
        return f"only {pairs} pairs of calls fitted into the time, {fewest} are needed"
    return None


def verdict(low, high, holds_if):
    """Judge an interval: what holds for all of it holds, what holds nowhere in it fails."""
    if low is None:
        return "inconclusive"
    one = len(inspect.signature(holds_if).parameters) == 1

    def holds(a, b):
        return bool(holds_if(a) and holds_if(b)) if one else bool(holds_if(a, b))

    if holds(low, high):
        return "holds"
    if not math.isfinite(high - low):  # a single training allows anything
        return "inconclusive"
    points = (low + (high - low) * share / 20 for share in range(21))
    return "inconclusive" if any(holds(point, point) for point in points) else "fails"
