"""One network trained under many settings and several seeds, and how far the settings are apart.

Every training is a job of its own; on a CPU each runs in a process with one thread, as many at once as torch has
threads here, because small networks gain more from a core of their own than from a second thread.
"""

from labkit.train.sweep.flatness import Flatness, flatness
from labkit.train.sweep.intervals import Interval, difference, mean_interval, ratio, values
from labkit.train.sweep.trainings import Trained, halved, run, settle
from labkit.train.workers import work

__all__ = [
    "Flatness",
    "Interval",
    "Trained",
    "difference",
    "flatness",
    "halved",
    "mean_interval",
    "ratio",
    "run",
    "settle",
    "values",
    "work",
]
