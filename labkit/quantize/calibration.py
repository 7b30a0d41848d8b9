"""Data for calibration: real inputs on which the ranges of a network's activations are observed.

Weights are known when a network is quantized, and activations are not. Their ranges are observed on
a few hundred examples of the data that the network will see. Random numbers have other ranges: a
network that was calibrated on them runs without an error and answers wrongly. Therefore this module
has no default data, and refuses images of noise.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import islice

import numpy as np

from labkit.errors import LabError

MIN_EXAMPLES = 64
HELD_OUT = 4
# of neighbouring pixels: far below that of real images, above that of random numbers
MIN_CORRELATION = 0.1
MAX_STD = 20.0  # images with a larger standard deviation have not been normalised


@dataclass(frozen=True)
class LazyBatches:
    """Batches that are made anew in each iteration, so that only one is in memory at a time.

    make  function () -> iterable of batches
    """

    make: Callable

    def __iter__(self):
        return iter(self.make())


@dataclass(frozen=True)
class Calibration:
    """Real inputs of a network, and where they come from.

    batches  a tuple of batches, or `LazyBatches` if they do not fit into memory together. They are
             iterated several times. A batch is an array, float32 (n, C, H, W) or int64 (n, T). For
             a network of several inputs a batch is a dictionary {input name: array}
    source   description of the data, such as "fashion-mnist train"; it is written into the
             quantized file
    labels   (N,) correct classes; None: not known
    sizes    number of examples in each batch; computed from `batches`
    Raises   LabError: `source` is empty; there are fewer than 64 examples; there are not as many
             labels as examples; the examples are not real data
    """

    batches: tuple | LazyBatches
    source: str
    labels: np.ndarray | None = None
    sizes: list = field(init=False, default_factory=list)

    def __post_init__(self):
        if not self.source.strip():
            raise _refusal("where the batches come from, in words", "no source")
        first_batches = self._count_examples()
        if self.count < MIN_EXAMPLES:
            raise _refusal(
                f"at least {MIN_EXAMPLES} examples; 256 are usual", f"{self.count} examples"
            )
        if self.labels is not None and len(self.labels) != self.count:
            raise _refusal(
                f"a label for each of {self.count} examples", f"{len(self.labels)} labels"
            )
        _require_real_data(first_batches)

    def _count_examples(self):
        """Fill `sizes`, and return the first batches, which hold 64 examples or more in total.

        The result is a list of {input name: array}. Further batches are not kept in memory. Raises
        a LabError if a batch holds NaN or infinity.
        """
        first_batches = []
        for batch in self.batches:
            arrays = batch
            if not isinstance(batch, dict):
                arrays = {"input": np.asarray(batch)}
            for values in arrays.values():
                if not np.isfinite(values).all():
                    raise _refusal("finite numbers", "NaN or infinity")
            if self.count < MIN_EXAMPLES:
                first_batches.append(arrays)
            first_input = next(iter(arrays.values()))
            self.sizes.append(len(first_input))
        return first_batches

    @property
    def count(self):
        """Number of examples."""
        return sum(self.sizes)

    @property
    def description(self):
        return f"{self.count} examples of {self.source}"

    @classmethod
    def of(cls, data, *, count=256, batch=32, size=None, seed=0):
        """Make a `Calibration` from an `ImageSet`.

        To calibrate, give training images: the network must not be fitted to test images.

        data    an `ImageSet`; a `Calibration` is returned unchanged
        count   number of images that are drawn. Each class keeps its share. If the set has fewer
                images, all are taken
        batch   number of images in a batch
        size    pixels a side; None: the size that the images have
        seed    seed of the random draw and of the order of the images
        Raises  LabError: `data` is something else
        """
        if isinstance(data, cls):
            return data
        if not hasattr(data, "subset"):
            raise _refusal(
                "real data: an ImageSet, or Calibration(batches, source)", type(data).__name__
            )
        import torch

        subset = data.subset(min(count, len(data)), seed=seed)
        order = torch.randperm(len(subset), generator=torch.Generator().manual_seed(seed))
        subset = subset.take(order)

        def make_batches():
            for images, _ in subset.batches(batch, size=size):
                yield images.cpu().numpy()

        return cls(
            LazyBatches(make_batches), f"{data.name} {data.split}", subset.labels.cpu().numpy()
        )

    def first(self, count):
        """Return a `Calibration` of the first batches that hold at least `count` examples."""
        return self._slice(0, self._batches_with(count))

    def after(self, count):
        """Return a `Calibration` of the batches that follow those of `first(count)`."""
        return self._slice(self._batches_with(count), len(self.sizes))

    def _batches_with(self, count):
        """Return the number of first batches that together hold at least `count` examples."""
        examples = np.cumsum(self.sizes)
        return int(np.searchsorted(examples, count)) + 1

    def _slice(self, begin, end):
        """Return a `Calibration` of the batches with the indices `begin` to `end` - 1."""
        labels = None
        if self.labels is not None:
            labels = self.labels[sum(self.sizes[:begin]) : sum(self.sizes[:end])]
        batches = LazyBatches(lambda: islice(self.batches, begin, end))
        return Calibration(batches, self.source, labels)


def split_numbers(count: int, split: str) -> np.ndarray | None:
    """Split examples without a test set into two parts, and return the indices of one part.

    Every fourth example is held out. If there are fewer than 256 examples, every third or second
    one is held out, so that at least 64 examples are.

    count    number of all examples
    split    "test" for the examples that are held out, "train" for the others
    returns  (n,) integers from 0 to count - 1. With fewer than 128 examples nothing is held out:
             then "train" has all examples, and "test" gives None
    """
    numbers = np.arange(count)
    step = min(HELD_OUT, count // MIN_EXAMPLES)
    if step < 2:
        return numbers if split == "train" else None
    is_held_out = numbers % step == 0
    return numbers[~is_held_out if split == "train" else is_held_out]


def _require_real_data(batches):
    """Raise a LabError if all examples are equal, or if images are noise or not normalised.

    Only images are checked for noise, because tokens of a real text may look random.

    batches  list of {input name: array}
    """
    distinct_examples = set()
    for arrays in batches:
        for values in arrays.values():
            distinct_examples.update(example.tobytes() for example in values)
    if len(distinct_examples) <= len(batches[0]):  # one for each input
        raise _refusal("different examples", "the same example again and again")

    for name, first_values in batches[0].items():
        if first_values.ndim == 4 and min(first_values.shape[2:]) >= 3:
            images = np.concatenate([arrays[name] for arrays in batches])
            if images.std() > MAX_STD:
                expected = "normalised images, as ImageSet.batches makes them"
                raise _refusal(expected, f"a standard deviation of {images.std():.0f}")
            correlation = max(
                neighbour_correlation(images, axis=2), neighbour_correlation(images, axis=3)
            )
            if correlation < MIN_CORRELATION:
                noise = "numbers as random as noise: neighbouring pixels do not resemble each other"
                raise _refusal("real images", noise)


def _refusal(expected, received):
    """Return the LabError that says why some data cannot calibrate a network.

    expected, received  texts: what the data should be, and what they are
    """
    return LabError(
        "This data cannot calibrate a network.",
        expected=expected,
        found=received,
        fix="give more or other examples with --data",
    )


def neighbour_correlation(images, axis):
    """Return the correlation of each pixel with the next one along `axis`.

    It is near 1 for photographs and near 0 for noise.

    images  (n, C, H, W)
    axis    2 or 3
    """
    length = images.shape[axis]
    pixels = images - images.mean(axis=(2, 3), keepdims=True)
    first = pixels.take(range(length - 1), axis)
    second = pixels.take(range(1, length), axis)
    power = np.sqrt((first**2).sum() * (second**2).sum())
    if power > 0:
        return float((first * second).sum() / power)
    return 0.0
