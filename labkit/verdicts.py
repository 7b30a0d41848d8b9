"""How a prediction and a claim are judged."""

import inspect
import math

CLOSE = 1.25  # a prediction within this factor of the result counts as close
RIGHT = 1.1  # and within this one as right


def judge(answer, result):
    """ "right", "close" (numbers only) or "off"."""
    try:
        guess, truth = float(answer), float(result)
    except ValueError:
        return "right" if answer == result else "off"
    if guess == truth:
        return "right"
    if guess * truth <= 0:
        return "off"
    factor = math.exp(abs(math.log(guess / truth)))
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


def verdict(low, high, holds_if):
    """Judge an interval: what holds for all of it holds, what holds at neither end nor for all of it fails."""
    if low is None:
        return "inconclusive"
    one = len(inspect.signature(holds_if).parameters) == 1

    def holds(a, b):
        return bool(holds_if(a) and holds_if(b)) if one else bool(holds_if(a, b))

    if holds(low, high):
        return "holds"
    return "inconclusive" if holds(low, low) or holds(high, high) else "fails"
