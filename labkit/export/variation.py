"""Measure how well answers reproduce what varies in a reference: the SQNR without the mean.

It is computed for an output as a whole and for its channels:

    dB = 10 log10( V / E ),    V = mean of (r - m)^2,    E = mean of (a - r)^2

r  a number in an answer of the reference
a  the same number in the answer of the other network
m  the mean of r over the items (the first axis), for each number of an output by itself

Example  A regression answers 299.9 and 300.1 to two kinds of inputs, and a coarse copy of it always
         300. Then V = 0.01 and E = 0.01: 0 dB, for the copy knows nothing about the input. Measured
         against the size of the answers, it would be 10 log10(300^2 / 0.01) = 70 dB.

What varies little beside the rest is lost in the figure of a whole output: scores of 0 to 1 beside
boxes of 0 to 640, or one destroyed class among a thousand. So each channel is judged by itself:
each index of axis 1, and each index of the last axis, because both are in use for channels. The
weakest of them decides.

Numbers that do not vary must not make everything fail:

- A number whose standard deviation over the items is at most `ROUNDING` of its size varies as
  float32 rounds. It counts as constant: the answers have to be near its size, dB = 10 log10(mean of
  r^2 / E).
- A channel is judged by itself only if at least `MIN_VALUES` numbers make up its variation, counted
  as
  (sum of d^2)^2 / (sum of d^4) with d = r - m. A feature that is zero but for two of 256 images is
  not. Neither is a channel that varies by less than what float32 resolves beside the largest value
  of the output.
- The more channels there are, the less the weakest says: answers of 1000 untrained classes vary
  little in some by chance, and have much noise in others. Of more than `MANY`, a channel is judged
  as if it varied at least as much as the median one, and times the factor by which the largest of
  so many squares of normal numbers exceeds their mean, 2 ln(count) - ln(pi ln(count)). A destroyed
  one of 1000 classes then has 10.3 dB instead of 0, which is seen. A minority of small channels
  among more than `MANY` is not.
- Fewer than `MIN_ITEMS` items have no reliable mean of each number: m is then the mean of the
  channel.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

EPSILON = float(np.finfo(np.float32).eps)  # 1.2e-7: the relative step of float32
ROUNDING = 16 * EPSILON  # relative rounding of a sum of many terms
MIN_VALUES = 8
MIN_ITEMS = 8
MANY = 64
ITEMS_AT_ONCE = 32  # so many items are in memory in float64


def decibels(db: float) -> str:
    """Return a figure as a text, rounded down: "14.9 dB" for 14.96.

    So no figure below a limit reads as if it reached the limit.
    """
    if not math.isfinite(db):
        return f"{db} dB"
    return f"{math.floor(10 * db + 1e-6) / 10:.1f} dB"


@dataclass(frozen=True)
class Channel:
    """One index of an axis of an output, with how well the numbers at that index are reproduced.

    Usually it is a channel; on the last axis of (N, C, H, W) it is a column of a map.

    axis   1 for (N, C, ...), or the last axis; axis 0 counts the items
    index  0 to count - 1
    count  length of the axis
    db     as in the equation of this module, infinite where nothing differs
    """

    axis: int
    index: int
    count: int
    db: float

    def __str__(self):
        return f"{decibels(self.db)} at index {self.index} of {self.count} on axis {self.axis}"


@dataclass(frozen=True)
class Likeness:
    """How well answers reproduce a reference, in dB; see `likeness`.

    db       the figure of the whole output
    weakest  the `Channel` with the lowest figure, None where there are no channels
    """

    db: float
    weakest: Channel | None = None

    @property
    def lowest_db(self):
        """Return the lower figure, in dB, of the whole output and of its weakest channel."""
        if self.weakest is None:
            return self.db
        return min(self.db, self.weakest.db)

    def __str__(self):
        text = decibels(self.db)
        if self.weakest is not None and self.weakest.db < self.db:
            text += f" (lowest: {self.weakest})"
        return text


def likeness(reference: Any, answers: Any) -> Likeness:
    """Compare an output with the same output of the reference. Returns a `Likeness`.

    reference, answers  arrays (N, ...) of one shape: N items. An answer that is not finite where
                        the reference is finite counts as infinitely wrong; equal infinities count
                        as equal
    """
    reference = np.asarray(reference)
    answers = np.asarray(answers)
    if reference.ndim < 2:
        reference = reference.reshape(-1, 1)
        answers = answers.reshape(-1, 1)
    if not reference.size:
        return Likeness(np.inf)

    # The sums of the whole output, and the channels along its first and its last axis.
    few = len(reference) < MIN_ITEMS
    around = reference.ndim if few else None
    sums = _Sums.of(reference, answers, around=around)
    channels = []
    for axis in sorted({1, reference.ndim - 1}):
        if few:
            sums_of_axis = _Sums.of(reference, answers, around=axis)
        else:
            sums_of_axis = sums
        channels += sums_of_axis.channels(axis)
    channels = [channel for channel in channels if np.isfinite(channel.db) or channel.db < 0]
    weakest = min(channels, key=lambda channel: channel.db, default=None)
    return Likeness(sums.decibels(), weakest)


@dataclass(frozen=True)
class _Sums:
    """Sums over the items: arrays in float64 of the shape of one item.

    r is a number in the reference, a the same number in the answers, m the mean of r.

    deviation  sums of (r - m)^2
    fourth     sums of (r - m)^4
    power      sums of r^2
    error      sums of (a - r)^2
    constant   True for numbers that do not vary, but are not zero
    least      the least sum of (r - m)^2 that float32 resolves beside the largest |r|, one number
    """

    deviation: np.ndarray
    fourth: np.ndarray
    power: np.ndarray
    error: np.ndarray
    constant: np.ndarray
    least: float

    @classmethod
    def of(cls, reference, answers, *, around=None):
        """Return the sums over the items.

        around  which numbers share a mean m. None: each number of an item has a mean of its own; an
                axis: the numbers at one index of that axis share a mean; beyond the last axis: all
                numbers share one
        """
        axes = 0
        if around is not None:
            axes = tuple(axis for axis in range(reference.ndim) if axis != around)
        finite = np.isfinite(reference)
        mean = np.where(finite, reference, 0).mean(axes, keepdims=True, dtype=np.float64)

        deviation, fourth, power, error = np.zeros((4, *reference.shape[1:]))
        for start in range(0, len(reference), ITEMS_AT_ONCE):
            items = slice(start, start + ITEMS_AT_ONCE)
            exact = np.where(finite[items], reference[items], 0).astype(np.float64)
            squares = np.where(finite[items], exact - mean, 0) ** 2
            deviation += squares.sum(0)
            fourth += (squares**2).sum(0)
            power += (exact**2).sum(0)
            error += _squared_error(reference[items], answers[items]).sum(0)

        constant = (deviation <= ROUNDING**2 * power) & (power > 0)
        if around is not None:  # single numbers are not known to be constant
            constant = np.full(constant.shape, bool(constant.all()))
        largest = np.abs(reference, where=finite, out=np.zeros(reference.shape)).max()
        return cls(
            deviation, fourth, power, error, constant, (EPSILON * largest) ** 2 * len(reference)
        )

    def decibels(self):
        """Return the figure of the whole output, in dB."""
        varying = ~self.constant
        varying_db = _decibels(self.deviation.sum(where=varying), self.error.sum(where=varying))
        constant_db = _decibels(
            self.power.sum(where=self.constant), self.error.sum(where=self.constant)
        )
        return float(np.minimum(varying_db, constant_db))

    def channels(self, axis):
        """Return a `Channel` for each index of an axis; none if there is only one index.

        A channel that is not judged has infinite dB.
        """
        count = self.deviation.shape[axis - 1]
        if count < 2:
            return []
        other_axes = tuple(index for index in range(self.deviation.ndim) if index != axis - 1)
        varying = ~self.constant

        # What varies in a channel, if enough numbers make it up.
        deviation = self.deviation.sum(other_axes, where=varying)
        fourth = self.fourth.sum(other_axes, where=varying)
        values = deviation**2 / np.maximum(fourth, np.finfo(float).tiny)
        judged = (values >= MIN_VALUES) & (deviation > self.least * varying.sum(other_axes))
        signal = deviation
        if count > MANY and judged.any():
            largest_of_many = 2 * np.log(count) - np.log(np.pi * np.log(count))
            signal = largest_of_many * np.maximum(deviation, np.median(deviation[judged]))
        db = np.where(judged, _decibels(signal, self.error.sum(other_axes, where=varying)), np.inf)

        # What is constant in a channel.
        power = self.power.sum(other_axes, where=self.constant)
        constant_db = _decibels(power, self.error.sum(other_axes, where=self.constant))
        return [
            Channel(axis, index, count, float(value))
            for index, value in enumerate(np.minimum(db, constant_db))
        ]


def _squared_error(exact, answers):
    """Return the squares of the differences; infinite where only one of the two is finite."""
    with np.errstate(invalid="ignore", over="ignore"):
        squares = (answers.astype(np.float64) - exact.astype(np.float64)) ** 2
    equal = (answers == exact) | (np.isnan(answers) & np.isnan(exact))
    finite_squares = np.where(np.isfinite(squares), squares, np.inf)
    return np.where(equal, 0, finite_squares)


def _decibels(signal, noise):
    """Return 10 log10(signal / noise) of arrays.

    It is infinite without noise, and minus infinite with noise but without a signal.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(noise == 0, np.inf, 10 * np.log10(np.divide(signal, noise)))
