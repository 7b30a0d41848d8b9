"""The limit that `automatic` keeps to: how much of the answers INT8 may cost."""

import math
from dataclasses import dataclass

import numpy as np

from labkit.errors import LabError
from labkit.export.variation import likeness

_UNLABELLED = "count other answers: leave out --labels"


@dataclass(frozen=True)
class Limit:
    """The most that INT8 may lose on held-out examples.

    points    most answers per hundred that may change: an answer is the class with the largest
              output. It counts only where an axis of the output holds classes. One standard error
              is added to the counted share: of many choices that are tried, the best looks better
              than it is
    min_sqnr  least SQNR in dB that `export.variation.likeness` may find in an output or one of its
              channels
    labels    True: count right answers that are lost instead of answers that change; the examples
              need labels. INT8 turns wrong answers into right ones, too, so this allows more
    unseen    the split ("train", "test") that the network was surely not trained on: the limit is
              judged on images of it. None: not known
    axis      axis of the first output that holds classes; None: 1 for (N, classes), and no axis
              otherwise
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
        """Return True if the outputs `quantized` may stand for the outputs `exact`, both (N, ...).

        labels  (N,) right classes; needed if `self.labels`
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
        """Return the axis of the outputs (N, ...) that holds classes, or None."""
        if self.axis is None and exact.ndim == 2:
            return 1 if exact.shape[1] > 1 else None  # one column has no largest output
        return self.axis

    def labels_of(self, data, exact):
        """Return the labels (N,) of a `Calibration` that `holds` needs; None if it needs none.

        exact   outputs of the network for this data
        Raises  LabError: the data have no labels, or the network does not answer with them
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
    """Return the error of labels that cannot be counted."""
    return LabError(
        problem,
        expected="the right answer to each example, as the number of an output",
        found=received,
        fix=_UNLABELLED,
    )
