"""The limit that `automatic` holds: how much of the answers INT8 may cost."""

import math
from dataclasses import dataclass

import numpy as np

from labkit.errors import LabError
from labkit.quantize.numbers import sqnr_db

_UNLABELLED = "count other answers: leave out --labels"


@dataclass(frozen=True)
class Limit:
    """The most that INT8 may lose on held-out examples.

    points    most that may be lost, in points of a hundred: items whose largest output moves to another place. It
              counts only where an axis holds classes. One standard error of what was found is added to it: of many
              choices that are tried, the best looks better than it is
    min_sqnr  least SQNR of the outputs, in dB
    labels    count the right answers lost instead, where the examples have labels. INT8 turns wrong answers into right
              ones, too, so this allows more
    unseen    the split ("train", "test") that the network was surely not trained on: the limit is judged on images of
              it. None: not known
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

    def holds(self, exact, found, labels=None):
        """True when `found` may stand for `exact`, both (N, ...); labels (N,) the right answers."""
        if sqnr_db(exact, found) < self.min_sqnr:
            return False
        axis = self._classes(exact)
        if axis is None:
            return True
        before, after = exact.argmax(axis), found.argmax(axis)
        lost = (before != after).astype(float)
        if self.labels:
            lost = (before == labels).astype(float) - (after == labels)
        lost = lost.reshape(len(lost), -1).mean(1)  # of the answers that an item has
        standard_error = lost.std() / math.sqrt(len(lost))
        return bool(100 * (lost.mean() + standard_error) <= self.points)

    def _classes(self, exact):
        return 1 if self.axis is None and exact.ndim == 2 else self.axis

    def labels_of(self, data, exact):
        """The labels of a `Calibration` that are to be counted, (N,), or None.

        exact   what the network puts out for it
        Raises  LabError: there are none, or the network does not answer with them
        """
        axis = self._classes(exact)
        if not self.labels or axis is None:
            return None
        parts = {"expected": "the right answer to each example, as the number of an output", "fix": _UNLABELLED}
        if data.labels is None:
            raise LabError("Right answers cannot be counted.", found="no labels", **parts)
        right = np.mean(exact.argmax(axis) == data.labels)
        most_frequent = np.bincount(data.labels.ravel()).max() / data.labels.size
        if right <= most_frequent:
            found = f"{right:.0%} right; always the same answer would be right in {most_frequent:.0%}"
            raise LabError("The network does not answer with these labels.", found=found, **parts)
        return data.labels
