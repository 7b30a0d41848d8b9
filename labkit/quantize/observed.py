"""Histograms of a network's activations on real data, and the range that an integer grid should cover."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from labkit.errors import require_known
from labkit.export import checked, session
from labkit.export.runtime import answers
from labkit.quantize.calibration import Calibration

BINS = 2048  # of a histogram of absolute values
PERCENTILE = 99.99


@dataclass
class Histogram:
    """The absolute values that a tensor took, counted in bins, and its extremes.

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


class Observed(dict):
    """{name: `Histogram`} of a network's float activations; `note` says in words what it was run on."""

    note = "unknown"


def observe(model: Any, data: Any) -> Observed:
    """Run an ONNX model in fp32 on the data and keep a `Histogram` of each float activation: an `Observed`.

    model  a path or a ModelProto
    data   an `ImageSet` or a `Calibration`; one batch of it is in memory at a time, with the activations that it makes.
           What this function returned comes back as it is
    Raises LabError: batches that do not have the inputs of the model
    """
    if isinstance(data, Observed):
        return data
    data, found = Calibration.of(data), Observed()
    found.note = data.note
    for name, values in activations(model, data):
        found.setdefault(name, Histogram()).add(values)
    return found


def activations(model, data, names=None):
    """Run an ONNX model on one batch after the other and yield (name, array) of each tensor.

    model  a path or a ModelProto
    data   a `Calibration`
    names  of tensors; None: all float activations and inputs
    """
    import onnx

    model = onnx.shape_inference.infer_shapes(checked(model))  # a copy
    graph = model.graph
    made = {name for node in graph.node for name in node.output} | {value.name for value in graph.input}
    known = {value.name: value for value in (*graph.output, *graph.value_info, *graph.input)}
    floats = {name for name, value in known.items() if value.type.tensor_type.elem_type == onnx.TensorProto.FLOAT}
    names = sorted(floats & made) if names is None else list(names)
    graph.output.extend(known[name] for name in sorted(set(names) - {value.name for value in graph.output}))
    opened = session(model)
    for batch in data.batches:
        yield from zip(names, answers(opened, batch, outputs=names), strict=True)


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


METHODS = {"minmax": lambda seen: seen.reach, "percentile": _percentile_threshold, "entropy": _entropy_threshold}


def ranges(histograms: dict[str, Histogram], method: str = "minmax") -> dict[str, tuple[float, float]]:
    """{name: (low, high)}: the range that each tensor's grid shall cover.

    method  minmax      all values seen: nothing saturates, and one outlier makes the grid coarse for all
            percentile  all but the largest: 99.99 percent of the values by magnitude
            entropy     the clipping that changes the distribution least (Kullback-Leibler), as TensorRT does it
    """
    require_known(method, METHODS, "calibration method")
    return {name: seen.clipped(METHODS[method](seen)) for name, seen in histograms.items()}
