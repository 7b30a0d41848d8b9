"""What a network's activations look like on real data, and the range that an integer grid should cover.

Weights are known when a network is quantized; activations are not: their ranges are observed on a few hundred examples
of the data the network will see. Random numbers have other ranges and give a network that looks right and answers
wrongly, so there is no default here and noise is refused.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

import numpy as np

from labkit.errors import LabError
from labkit.export import session
from labkit.export.runtime import answers

FEWEST = 64  # examples
BINS = 2048  # of a histogram of absolute values
NOISE = 0.1  # neighbouring pixels of real images correlate far above this, those of random numbers do not
WIDEST = 20.0  # standard deviation above which images were surely not normalised
METHODS = ("minmax", "percentile", "entropy")
PERCENTILE = 99.99


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
    count    examples in all batches
    """

    batches: tuple | Again
    source: str
    count: int = field(init=False)

    def __post_init__(self):
        count, wrong = _looked_at(self)
        if wrong:
            raise _refused(*wrong)
        object.__setattr__(self, "count", count)

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
        part = data.subset(min(count, len(data)), seed=seed).batches(batch, seed=seed, size=size)
        return cls(Again(lambda: (images.cpu().numpy() for images, _ in part)), f"{data.name} {data.split}")

    def first(self, count):
        """The first batches, with at least `count` examples: a `Calibration`."""
        end = self._batches_of(count)
        return Calibration(Again(lambda: islice(self.batches, end)), self.source)

    def after(self, count):
        """All batches but those of `first`."""
        begin = self._batches_of(count)
        return Calibration(Again(lambda: islice(self.batches, begin, None)), self.source)

    def _batches_of(self, count):
        """How many batches hold the first `count` examples."""
        held = np.cumsum([_examples(batch) for batch in self.batches])
        return int(np.searchsorted(held, count)) + 1

    @property
    def note(self):
        return f"{self.count} examples of {self.source}"


def named(batch):
    """{name of the input: array} of a batch; the name is None where there is one input."""
    return batch if isinstance(batch, dict) else {None: np.asarray(batch)}


def _examples(batch):
    return len(next(iter(named(batch).values())))


def _looked_at(data):
    """(how many examples, what is wrong): that is (what a network is calibrated with, what is here instead), or None.

    One batch at a time is in memory. Only images are looked at closely, the first of them: there is no telling random
    tokens from text of an unknown language.
    """
    if not data.source.strip():
        return 0, ("where the batches come from, in words", "no source")
    count, same, first, few = 0, True, None, []
    for batch in data.batches:
        arrays = named(batch)
        if not all(np.isfinite(values).all() for values in arrays.values()):
            return count, ("finite numbers", "NaN or infinity")
        first = first or {name: values[:1] for name, values in arrays.items()}
        same = same and all(_repeats(values, first[name]) for name, values in arrays.items())
        few += [arrays] if count < FEWEST else []
        count += _examples(batch)
    if count < FEWEST:
        return count, (f"at least {FEWEST} examples; 256 are usual", f"{count} examples")
    if same:
        return count, ("different examples", "the same example again and again")
    images = [name for name, values in few[0].items() if values.ndim == 4 and min(values.shape[2:]) >= 3]
    wrong = [_wrong_images(np.concatenate([arrays[name] for arrays in few])) for name in images]
    return count, next(filter(None, wrong), None)


def _repeats(values, first):
    return values.shape[1:] == first.shape[1:] and bool((values == first).all())


def _wrong_images(values):
    if values.std() > WIDEST:
        return "normalised images, as ImageSet.batches makes them", f"a standard deviation of {values.std():.0f}"
    if max(neighbours(values, 2), neighbours(values, 3)) < NOISE:
        return "real images", "numbers as random as noise: neighbouring pixels do not resemble each other"
    return None


def _refused(expected, found):
    fix = 'pass a training set, such as labkit.data.load("fashion-mnist", "train"), or say where the batches come from'
    return LabError("This data cannot calibrate a network.", expected=expected, found=found, fix=fix)


def neighbours(images, axis):
    """Correlation of each pixel with the next one along `axis`: near 1 for photographs, near 0 for noise."""
    length = images.shape[axis]
    pixels = images - images.mean(axis=(2, 3), keepdims=True)
    first, second = pixels.take(range(length - 1), axis), pixels.take(range(1, length), axis)
    power = np.sqrt((first**2).sum() * (second**2).sum())
    return float((first * second).sum() / power) if power > 0 else 0.0


@dataclass
class Histogram:
    """How often a tensor took which absolute value, and its extremes.

    reach      the histogram goes from 0 to here; it doubles when a larger value comes
    low, high  smallest and largest value seen, and 0
    counts     (BINS,)
    shape      of the tensor in the last batch
    """

    reach: float = 0.0
    low: float = 0.0
    high: float = 0.0
    counts: np.ndarray = field(default_factory=lambda: np.zeros(BINS, np.int64))
    shape: tuple = ()

    def add(self, values):
        """Count the values of an array of any shape."""
        self.shape = values.shape
        self.low, self.high = min(self.low, float(values.min())), max(self.high, float(values.max()))
        largest = max(-self.low, self.high)
        self.reach = self.reach or largest
        while self.reach < largest:  # two old bins become one new bin
            self.reach *= 2
            self.counts = np.concatenate([self.counts.reshape(-1, 2).sum(1), np.zeros(BINS // 2, np.int64)])
        bins = np.abs(values).ravel() * np.float32(BINS / (self.reach or 1.0))
        self.counts += np.bincount(np.minimum(bins.astype(np.int64), BINS - 1), minlength=BINS)

    @property
    def edges(self):
        """(BINS + 1,)"""
        return np.linspace(0, self.reach, BINS + 1)

    def clipped(self, threshold):
        """(low, high) of the values that `threshold` leaves."""
        return max(self.low, -threshold), min(self.high, threshold)


def observe(model, data):
    """Run an ONNX model in fp32 on the data and keep a `Histogram` of each float activation: {name: Histogram}.

    model  a path or a ModelProto
    data   a `Calibration`; one batch of it is in memory at a time, with the activations that it makes
    Raises LabError: batches that do not have the inputs of the model
    """
    found = {}
    for values in activations(model, data):
        for name, array in values.items():
            found.setdefault(name, Histogram()).add(array)
    return found


def activations(model, data, names=None):
    """Run an ONNX model as it is written and yield {name: array} for each batch.

    model  a path or a ModelProto
    data   a `Calibration`
    names  of tensors; None: all float activations and inputs
    """
    import onnx

    model = onnx.load(model) if isinstance(model, (str, Path)) else model
    model = onnx.shape_inference.infer_shapes(model)  # a copy
    graph = model.graph
    made = {name for node in graph.node for name in node.output} | {value.name for value in graph.input}
    known = {value.name: value for value in (*graph.output, *graph.value_info, *graph.input)}
    floats = {name for name, value in known.items() if value.type.tensor_type.elem_type == onnx.TensorProto.FLOAT}
    names = sorted(floats & made) if names is None else list(names)
    graph.output.extend(known[name] for name in sorted(set(names) - {value.name for value in graph.output}))
    opened = session(model)
    for batch in data.batches:
        yield dict(zip(names, answers(opened, *in_order(opened, batch), outputs=names), strict=True))


def in_order(opened, batch):
    """The arrays of a batch in the order of a session's inputs.

    Raises  LabError: {name: array} with other names
    """
    names = [node.name for node in opened.get_inputs()]
    if not isinstance(batch, dict):
        return [batch]
    if set(batch) != set(names):
        fix = "name each array as the input of the model is named"
        what = "These batches do not have the inputs of the model."
        raise LabError(what, expected=", ".join(names), found=", ".join(map(str, batch)), fix=fix)
    return [batch[name] for name in names]


def ranges(histograms, method="minmax"):
    """{name: (low, high)}: the range that each tensor's grid shall cover.

    method  minmax      all values seen: nothing saturates, and one outlier makes the grid coarse for all
            percentile  all but the largest: 99.99 percent of the values by magnitude
            entropy     the clipping that changes the distribution least (Kullback-Leibler), as TensorRT does it
    """
    if method not in METHODS:
        raise LabError(f"There is no calibration method {method!r}.", expected=" or ".join(METHODS), found=method)
    found = {}
    for name, seen in histograms.items():
        threshold = seen.reach
        if method != "minmax":
            threshold = _percentile_threshold(seen) if method == "percentile" else _entropy_threshold(seen)
        found[name] = seen.clipped(threshold)
    return found


def _percentile_threshold(seen, percentile=PERCENTILE):
    """The smallest bin edge with at least `percentile` percent of the absolute values below it."""
    share = np.cumsum(seen.counts) / seen.counts.sum()
    return float(seen.edges[1 + np.searchsorted(share, percentile / 100)])


def _entropy_threshold(seen, *, levels=128, step=8):
    """The threshold whose clipped and quantized distribution is nearest to the observed one.

    For each candidate: P is the histogram up to it, with everything beyond in its last bin; Q is the same merged into
    `levels` bins and spread out again over those that were not empty. The candidate with the least KL(P, Q) wins.
    Source: Migacz 2017, "8-bit inference with TensorRT", GTC S7310
    """
    counts = seen.counts.astype(np.float64)
    counts[0] = 0  # exact zeros (half of what a ReLU gives) fit on any grid and would drown all else
    if counts.sum() == 0:
        return seen.reach
    last = int(np.flatnonzero(counts)[-1]) + 1
    candidates = [*range(levels, max(last, levels), step), max(last, levels)]
    distances = [_divergence(counts, end, levels) for end in candidates]
    return float(seen.edges[candidates[int(np.argmin(distances))]])


def _divergence(counts, end, levels):
    """KL(P, Q) of clipping at bin `end`, in nats; infinite where Q has nothing and P has something."""
    from scipy.special import rel_entr

    kept = counts[:end]
    observed = kept.copy()
    observed[-1] += counts[end:].sum()
    level = np.arange(end) * levels // end  # which of the levels each bin falls into
    filled = kept > 0
    total = np.bincount(level, kept, levels)
    share = total / np.maximum(np.bincount(level, filled, levels), 1)
    quantized = np.where(filled, share[level], 0.0)
    if not quantized.any():
        return np.inf
    return float(rel_entr(observed / observed.sum(), quantized / quantized.sum()).sum())
