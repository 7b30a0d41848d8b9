"""Means over a few seeds, how sure they are, and how far settings are apart."""

import functools
import math
from typing import NamedTuple

import numpy as np


class Interval(NamedTuple):
    """A mean and its 95 % interval."""

    mean: float
    low: float
    high: float

    @property
    def median(self):
        """The point estimate, under the name that claims look for."""
        return self.mean

    def __str__(self):
        return f"{self.mean:.2f} [{self.low:.2f}, {self.high:.2f}]"


def mean_interval(values):
    """Mean of a few independent values and its 95 % interval by Student's t; endless for a single one."""
    values = np.asarray(values, dtype=float)
    middle, count = float(values.mean()), len(values)
    if count < 2:
        return Interval(middle, -math.inf, math.inf)
    reach = student_t(count - 1) * float(values.std(ddof=1)) / math.sqrt(count)
    return Interval(middle, middle - reach, middle + reach)


@functools.cache
def student_t(freedom):
    """The 0.975 quantile of Student's t: 12.71 for 1 degree of freedom, 2.78 for 4, 1.96 for many."""
    x = np.linspace(0, 20, 200_001)
    log_scale = math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2) - 0.5 * math.log(freedom * math.pi)
    density = np.exp(log_scale - (freedom + 1) / 2 * np.log1p(x**2 / freedom))
    mass = np.concatenate([[0], np.cumsum((density[1:] + density[:-1]) / 2) * (x[1] - x[0])])
    return float(np.interp(0.475, mass, x))


def values(trained, name, what="accuracy"):
    """(seeds,) of one setting, in the order of the seeds."""
    found = sorted((each.seed, getattr(each, what)) for each in trained if each.name == name)
    return np.array([value for _, value in found])


def difference(trained, name, other, what="accuracy"):
    """`name` minus `other`, seed by seed (the same seed begins with the same weights): an `Interval`."""
    return mean_interval(values(trained, name, what) - values(trained, other, what))


def ratio(found, name, other, what):
    """`name` over `other`, seed by seed: the geometric mean and its 95 % interval, an `Interval`."""
    logs = mean_interval(np.log(values(found, name, what)) - np.log(values(found, other, what)))
    return Interval(*(math.exp(min(value, 700)) for value in logs))
