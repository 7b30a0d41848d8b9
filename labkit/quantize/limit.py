"""The limit that `automatic` holds: how much of the answers INT8 may cost."""

import math
from dataclasses import dataclass

import numpy as np

from labkit.errors import LabError
from labkit.export.variation import likeness

_UNLABELLED = "count other answers: leave out --labels"


@dataclass(frozen=True)
class Limit:
    """The most that INT8 may lose on held-out examples.

    points    most that may be lost, in points of a hundred: items whose largest output moves to
              another place. It counts only where an axis holds classes. One standard error of the
              share that was counted is added to it: of many choices that are tried, the best looks
              better than it is
    min_sqnr  least SQNR of what varies, in dB: of each output and each of its channels
    labels    count the right answers lost instead, where the examples have labels. INT8 turns wrong
              answers into right ones, too, so this allows more
    unseen    the split ("train", "test") that the network was surely not trained on: the limit is
              judged on images of it. None: not known
    axis      of the first output, that holds classes; None: 1 for (N, classes), and none otherwise
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
        """True if the outputs `quantized` may stand for `exact`, both (N, ...).

        labels  (N,) the right answers, where they are counted
        """
        if not likeness(exact, quantized).lowest_db >= self.min_sqnr:
            return False
        axis = self._classes(exact)
        if axis is None:
            return True
        before = exact.argmax(axis)
        after = quantized.argmax(axis)
        if self.labels:
            lost = (before == labels).astype(float) - (after == labels)
        else:
            lost = (before != after).astype(float)
        lost = lost.reshape(len(lost), -1).mean(1)  # of the answers that an item has
        standard_error = lost.std() / math.sqrt(len(lost))
        return bool(100 * (lost.mean() + standard_error) <= self.points)

    def _classes(self, exact):
        """Return the axis of the outputs (N, ...) that holds classes, or None."""
        if self.axis is None and exact.ndim == 2:
            return 1 if exact.shape[1] > 1 else None  # one column has no largest
        return self.axis

    def labels_of(self, data, exact):
        """Return the labels of a `Calibration` that are to be counted, (N,), or None.

        exact   what the network puts out for it
        Raises  LabError: there are none, or the network does not answer with them
        """
        axis = self._classes(exact)
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
