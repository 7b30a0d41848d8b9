"""Real data to observe a network on.

Weights are known when a network is quantized; activations are not: their ranges are observed on a few hundred examples
of the data the network will see. Random numbers have other ranges and give a network that looks right and answers
wrongly, so there is no default here and noise is refused.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import islice

import numpy as np

from labkit.errors import LabError

FEWEST = 64  # examples
NOISE = 0.1  # neighbouring pixels of real images correlate far above this, those of random numbers do not
WIDEST = 20.0  # standard deviation above which images were surely not normalised


@dataclass(frozen=True)
class Again:
    """Batches that are made anew each time they are iterated: only one of them is in memory.

    make  () -> an iterable of batches
    """

    make: Callable

    def __iter__(self):
        return iter(self.make())


@dataclass(frozen=True)
class Calibration:
    """Real inputs of a network, and where they come from.

    batches  what can be iterated again and again: a tuple, or `Again` for more than fits into memory. A batch is an
             array, float32 (n, C, H, W) or int64 (n, T); for a network of several inputs it is {name: array}
    source   in words, such as "fashion-mnist train"; it is written into the quantized file
    labels   (N,) the right answers, where they are known
    sizes    examples in each batch
    """

    batches: tuple | Again
    source: str
    labels: np.ndarray | None = None
    sizes: list = field(init=False, default_factory=list)

    def __post_init__(self):
        if wrong := _looked_at(self):
            raise _refused(*wrong)

    @property
    def count(self):
        return sum(self.sizes)

    @classmethod
    def of(cls, data, *, count=256, batch=32, size=None, seed=0):
        """From an `ImageSet`; of training images, for the test must stay unseen. A Calibration comes back as it is.

        count  images, each class in proportion; all of them where there are fewer
        batch  images that are in memory at once, with all activations of the network
        size   pixels a side, for networks that want larger images
        """
        if isinstance(data, cls):
            return data
        if not hasattr(data, "subset"):
            raise _refused("real data: an ImageSet, or Calibration(batches, source)", type(data).__name__)
        import torch

        part = data.subset(min(count, len(data)), seed=seed)
        part = part.take(torch.randperm(len(part), generator=torch.Generator().manual_seed(seed)))
        images = Again(lambda: (images.cpu().numpy() for images, _ in part.batches(batch, size=size)))
        return cls(images, f"{data.name} {data.split}", part.labels.cpu().numpy())

    def first(self, count):
        """The first batches, with at least `count` examples: a `Calibration`."""
        return self._part(0, self._reach(count))

    def after(self, count):
        """All batches but those of `first`."""
        return self._part(self._reach(count), len(self.sizes))

    def _part(self, begin, end):
        examples = slice(sum(self.sizes[:begin]), sum(self.sizes[:end]))
        some = Again(lambda: islice(self.batches, begin, end))
        return Calibration(some, self.source, None if self.labels is None else self.labels[examples])

    def _reach(self, count):
        """The fewest batches with `count` examples."""
        return int(np.searchsorted(np.cumsum(self.sizes), count)) + 1

    @property
    def note(self):
        return f"{self.count} examples of {self.source}"


def _looked_at(data):
    """What is wrong: (what a network is calibrated with, what is here instead), or None. It counts the examples, too.

    One batch at a time is in memory. Only the first images are looked at closely: there is no telling
    random tokens from text of an unknown language.
    """
    if not data.source.strip():
        return "where the batches come from, in words", "no source"
    early = []
    for batch in data.batches:
        arrays = batch if isinstance(batch, dict) else {None: np.asarray(batch)}  # by input
        if not all(np.isfinite(values).all() for values in arrays.values()):
            return "finite numbers", "NaN or infinity"
        if data.count < FEWEST:
            early.append(arrays)
        data.sizes.append(len(next(iter(arrays.values()))))
    if data.count < FEWEST:
        return f"at least {FEWEST} examples; 256 are usual", f"{data.count} examples"
    if data.labels is not None and len(data.labels) != data.count:
        return f"a label for each of {data.count} examples", f"{len(data.labels)} labels"
    different = {example.tobytes() for arrays in early for values in arrays.values() for example in values}
    if len(different) <= len(early[0]):
        return "different examples", "the same example again and again"
    images = [name for name, values in early[0].items() if values.ndim == 4 and min(values.shape[2:]) >= 3]
    wrong = [_wrong_images(np.concatenate([arrays[name] for arrays in early])) for name in images]
    return next(filter(None, wrong), None)


def _wrong_images(values):
    if values.std() > WIDEST:
        return "normalised images, as ImageSet.batches makes them", f"a standard deviation of {values.std():.0f}"
    if max(neighbours(values, 2), neighbours(values, 3)) < NOISE:
        return "real images", "numbers as random as noise: neighbouring pixels do not resemble each other"
    return None


def _refused(expected, found):
    fix = "give more or other pictures: --data FOLDER"
    return LabError("This data cannot calibrate a network.", expected=expected, found=found, fix=fix)


def neighbours(images, axis):
    """Correlation of each pixel with the next one along `axis`: near 1 for photographs, near 0 for noise."""
    length = images.shape[axis]
    pixels = images - images.mean(axis=(2, 3), keepdims=True)
    first, second = pixels.take(range(length - 1), axis), pixels.take(range(1, length), axis)
    power = np.sqrt((first**2).sum() * (second**2).sum())
    return float((first * second).sum() / power) if power > 0 else 0.0
