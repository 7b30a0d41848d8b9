"""Repeat a training with several seeds (`repeat`), and compare two settings seed by seed.

    lars = repeat(train, range(12), batch=256, optimizer=LARS)
    sgd = repeat(train, range(12), batch=256)
    lars - sgd                     # (12,) points, pair by pair
    share(lars - sgd, small - sgd)  # percent of the gap, with its interval

`train` is a function of the notebook. The trainings run one after the other in this process, so the
reader's own optimizer, schedule and hooks can be passed as they are. That is fast enough: the small
networks of the lessons train in a fraction of a second.
"""

import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from labkit.errors import LabError
from labkit.measure.stats import CONFIDENCE, MIN_SAMPLES_OF_MEAN, Interval, mean_interval


class Runs(list):
    """A list of the results of `train`, one per seed, in the order of the seeds.

    For two settings `a` and `b`, `a - b` compares the trainings that have the same seed.

    seeds  tuple of the seeds
    """

    def __init__(self, runs, seeds):
        super().__init__(runs)
        self.seeds = tuple(seeds)

    @property
    def accuracy(self):
        """Return the accuracies, in percent of the test images, as an array (seeds,)."""
        return np.array([run.accuracy for run in self], dtype=float)

    @property
    def losses(self):
        """Return the training loss after each epoch as an array (seeds, epochs)."""
        return np.array([run.losses for run in self], dtype=float)

    def __sub__(self, other):
        """Return the accuracy of these trainings minus that of `other`, seed by seed, in points.

        The result is an array (pairs,). Two trainings with the same seed are a pair. A training
        whose seed the other `Runs` does not have is left out.

        Raises  LabError where no seed is in both
        """
        shared = [seed for seed in self.seeds if seed in other.seeds]
        if not shared:
            raise LabError(
                "These trainings have no seed in common, so there are no pairs to compare.",
                expected="two settings that were trained with the same seeds",
                found=f"seeds {self._seed_range()} and {other._seed_range()}",
                fix="repeat one of them with the seeds of the other",
            )
        left_by_seed = dict(zip(self.seeds, self.accuracy, strict=True))
        right_by_seed = dict(zip(other.seeds, other.accuracy, strict=True))
        return np.array([left_by_seed[seed] - right_by_seed[seed] for seed in shared])

    def lead(self, baseline: "Runs") -> Interval:
        """Return the mean of `self - baseline` with its 95 % `Interval`."""
        return mean_interval(self - baseline)

    def _seed_range(self):
        """Return the smallest and the largest seed, in words."""
        return f"{min(self.seeds)} to {max(self.seeds)}" if self.seeds else "none"


def repeat(train: Callable, seeds: Iterable[int], **settings: Any) -> Runs:
    """Call `train(seed=seed, **settings)` once for each seed and return the `Runs`.

    train     function of the notebook that returns an object with `accuracy` (percent) and `losses`
              (a list with one per epoch)
    seeds     such as range(100, 112)
    settings  further arguments of `train`
    """
    seeds = tuple(seeds)
    return Runs([train(seed=seed, **settings) for seed in seeds], seeds)


def share(numerator: Any, denominator: Any) -> Interval:
    """Return mean(numerator) / mean(denominator) in percent, with its 95 % `Interval`.

    numerator, denominator  (seeds,) numbers; the numbers at one position come from the same seed

    Both means are uncertain, and they are correlated. By Fieller's theorem, a ratio r lies in the
    interval if the mean of numerator - r * denominator does not differ significantly from 0 by
    Student's t test. If the mean of the denominator does not differ significantly from 0, the ratio
    could be anything, and the interval is infinite.

    Source  Fieller, "Some problems in interval estimation", 1954
    """
    numerator = np.asarray(numerator, dtype=float)
    denominator = np.asarray(denominator, dtype=float)
    n = len(numerator)
    if n != len(denominator):
        raise LabError(
            "A share needs pairs of numbers.",
            expected=f"{n} numbers in both",
            found=f"{n} and {len(denominator)}",
        )
    ratio = 100 * numerator.mean() / denominator.mean() if denominator.mean() else math.nan
    low, high = (
        _fieller(numerator, denominator) if n >= MIN_SAMPLES_OF_MEAN else (-math.inf, math.inf)
    )
    # an infinite interval decides nothing: it needs one seed more than there are
    needed = MIN_SAMPLES_OF_MEAN if math.isfinite(low) else n + 1
    return Interval(100 * low, 100 * high, n, ratio, min_samples=needed, method="t")


def _fieller(numerator, denominator):
    """Return (low, high): the ends of Fieller's interval of the ratio r, as fractions.

    At both ends the squared mean of numerator - r * denominator equals t^2 times its variance. This
    is a quadratic equation in r: a r^2 - 2 b r + c = 0. Where a is not above 0, the interval is
    infinite.

    numerator, denominator  (seeds,) numbers
    """
    from scipy.special import stdtrit

    n = len(numerator)
    # Variances and covariance of the means.
    (numerator_variance, covariance), (_, denominator_variance) = np.cov(numerator, denominator) / n
    t_squared = stdtrit(n - 1, (1 + CONFIDENCE) / 2) ** 2
    a = denominator.mean() ** 2 - t_squared * denominator_variance
    b = numerator.mean() * denominator.mean() - t_squared * covariance
    c = numerator.mean() ** 2 - t_squared * numerator_variance
    if a <= 0:
        return -math.inf, math.inf
    root = math.sqrt(max(0.0, b**2 - a * c))
    return (b - root) / a, (b + root) / a
