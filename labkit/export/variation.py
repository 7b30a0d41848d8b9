"""Measure how well answers reproduce what varies in a reference: the SQNR without the mean.

The SQNR (signal-to-quantization-noise ratio) is computed for a whole output, and for each channel
of the output:

    dB = 10 log10( V / E ),    V = mean of (r - m)^2,    E = mean of (a - r)^2

r  a number in an answer of the reference
a  the same number in the answer of the other network
m  the mean of r over the items (the first axis), for each number of an output by itself

Example  A regression answers 299.9 and 300.1 to two kinds of inputs, and a coarse copy of it always
         300. Then V = 0.01 and E = 0.01. The copy has 0 dB, because it knows nothing about the
         input. With the size of the answers in place of V, it would have 10 log10(300^2 / 0.01) =
         70 dB.

The figure of a whole output hides an error in a part that varies little compared with the rest: in
scores of 0 to 1 beside boxes of 0 to 640, or in one destroyed class among a thousand. So each
channel gets a figure of its own, and the lowest figure decides. A channel is an index of axis 1 or
an index of the last axis, because networks use both axes for channels.

Four rules prevent a low figure that means nothing:

- Constant numbers. Some numbers vary by no more than float32 rounds: their standard deviation over
  the items is at most `ROUNDING` times their size. They are compared with their size instead: dB =
  10 log10(mean of r^2 / E).
- Channels with little variation. A channel gets a figure only if two conditions hold. First, at
  least `MIN_VALUES` numbers make up its variation; their number is (sum of d^2)^2 / (sum of d^4)
  with d = r - m. A feature that is zero except for two of 256 images gets no figure. Second, the
  channel varies by more than float32 resolves beside the largest value of the output.
- Many channels. The more channels there are, the lower is the lowest figure by chance alone: of
  1000 untrained classes some vary little, and others have much noise. For more than `MANY`
  channels, V is therefore raised in two steps: to the median V of the channels, if it is below; and
  by a factor of 2 ln(count) - ln(pi ln(count)), by which the largest of so many squares of normal
  numbers exceeds their mean. One destroyed class of 1000 then has 10.3 dB instead of 0, which is
  still low. But if a minority of the channels varies little, an error in these channels does not
  show.
- Few items. With fewer than `MIN_ITEMS` items, the mean of a single number is not reliable. Then m
  is the mean of all numbers of the channel.
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
    """The figure of one channel: one index of an axis of an output.

    For an output (N, C, H, W) an index of the last axis is a column of pixels rather than a
    channel.

    axis   axis of the output: 1, or the last one. Axis 0 counts the items
    index  index on this axis, 0 to count - 1
    count  length of the axis
    db     the SQNR of this module, in dB; infinite if nothing differs
    """

    axis: int
    index: int
    count: int
    db: float

    def __str__(self):
        return f"{decibels(self.db)} at index {self.index} of {self.count} on axis {self.axis}"


@dataclass(frozen=True)
class Likeness:
    """How well answers reproduce a reference, in dB. `likeness` returns it.

    db       the SQNR of the whole output
    weakest  the `Channel` with the lowest SQNR; None if no channel has a figure
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
    """Sums over the items of one output: arrays in float64 with the shape of one item.

    r is a number in the reference, a the same number in the answers, m the mean of r.

    deviation  sums of (r - m)^2
    fourth     sums of (r - m)^4
    power      sums of r^2
    error      sums of (a - r)^2
    constant   True for numbers that do not vary, but are not zero
    least      a single number: a sum of (r - m)^2 that is not larger comes from rounding, because
               float32 has limited digits beside the largest |r|
    """

    deviation: np.ndarray
    fourth: np.ndarray
    power: np.ndarray
    error: np.ndarray
    constant: np.ndarray
    least: float

    @classmethod
    def of(cls, reference, answers, *, around=None):
        """Compute the sums over the items.

        reference, answers  arrays (N, ...)
        around              which numbers share a mean m. None: each number of an item has a mean of
                            its own. An axis: all numbers at the same index of this axis share a
                            mean. The number of axes: all numbers of the output share one mean
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
        """Return a `Channel` for each index of an axis; an empty list if there is only one index.

        A channel that varies too little to get a figure has infinite dB.

        axis  axis of the output, 1 or more
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
