"""Define how much of the answers INT8 may cost: the limit for the function `automatic`."""

import math
from dataclasses import dataclass

import numpy as np

from labkit.errors import LabError
from labkit.export.variation import likeness

_UNLABELLED = "count other answers: leave out --labels"


@dataclass(frozen=True)
class Limit:
    """The most that INT8 may lose on held-out examples, in answers and in decibels.

    points    the most answers per hundred that may change. An answer is the class with the largest
              output; answers are counted only if an axis of the first output holds classes. One
              standard error is added to the counted share, because many choices of layers are
              tried, and the best of them looks better than it is
    min_sqnr  the least SQNR in dB, as `export.variation.likeness` measures it, for each output as a
              whole and for each channel of it
    labels    False: count all answers that change. True: count right answers lost minus right
              answers gained; the examples then need labels. This allows more, because INT8 also
              turns some wrong answers into right ones
    unseen    the split, "train" or "test", that the network was surely not trained on. The held-out
              images are taken from it. None: not known
    axis      axis of the first output that holds classes. None: axis 1 of an output (N, classes);
              any other output counts as one without classes
    """

    points: float = 0.5
    min_sqnr: float = 15.0
    labels: bool = False
    unseen: str | None = None
    axis: int | None = None

    def __str__(self):
        counted = "right answers lost" if self.labels else "other answers"
        return f"at most {self.points:g} points of {counted} and at least {self.min_sqnr:g} dB"

    def holds(self, exact, quantized, labels=None):
        """Return True if quantized outputs are near enough to the exact outputs.

        exact, quantized  arrays (N, ...) of one output: before and after quantization
        labels            (N,) right classes; needed only if `self.labels` is True
        """
        if not likeness(exact, quantized).lowest_db >= self.min_sqnr:
            return False
        axis = self._class_axis(exact)
        if axis is None:
            return True
        exact_classes = exact.argmax(axis)
        quantized_classes = quantized.argmax(axis)
        if self.labels:
            lost = (exact_classes == labels).astype(float) - (quantized_classes == labels)
        else:
            lost = (exact_classes != quantized_classes).astype(float)
        lost = lost.reshape(len(lost), -1).mean(1)  # share of each item's answers
        standard_error = lost.std() / math.sqrt(len(lost))
        return bool(100 * (lost.mean() + standard_error) <= self.points)

    def _class_axis(self, exact):
        """Return the axis of the outputs (N, ...) that holds classes; None if no axis does."""
        if self.axis is None and exact.ndim == 2:
            return 1 if exact.shape[1] > 1 else None  # one column has no largest output
        return self.axis

    def labels_of(self, data, exact):
        """Return the labels (N,) to give to `holds`; None if `holds` counts no right answers.

        data    the `Calibration` that has the labels
        exact   the first output of the network in float for this data
        Raises  LabError: there are no labels; or the network is right no more often than the most
                frequent label would be, so that its outputs mean something else
        """
        axis = self._class_axis(exact)
        if not self.labels or axis is None:
            return None
        if data.labels is None:
            raise _refusal("Right answers cannot be counted.", "no labels")
        right = np.mean(exact.argmax(axis) == data.labels)
        most_frequent = np.bincount(data.labels.ravel()).max() / data.labels.size
        if right <= most_frequent:
            shares = (
                f"{right:.0%} right; always the same answer would be right in {most_frequent:.0%}"
            )
            raise _refusal("The network does not answer with these labels.", shares)
        return data.labels


def _refusal(problem, received):
    """Return the LabError about labels that cannot be counted.

    problem, received  texts: the problem, and what the labels are
    """
    return LabError(
        problem,
        expected="the right answer to each example, as the number of an output",
        found=received,
        fix=_UNLABELLED,
    )
