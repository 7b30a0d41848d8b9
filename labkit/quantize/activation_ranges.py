"""Histograms of a network's activations on real data, and the ranges of their integer grids."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from labkit.errors import LabError, require_known
from labkit.export import checked, session
from labkit.export.runtime import answers
from labkit.quantize.calibration import Calibration

BINS = 2048  # of a histogram of absolute values
PERCENTILE = 99.99
TINY = 1e-30  # below it, bins per unit would overflow float32


@dataclass
class Histogram:
    """Histogram of the absolute values of a tensor, with its smallest and largest value.

    upper_edge  the bins cover 0 to this number, which doubles when a larger value comes
    low, high   smallest and largest value so far; low is at most 0, high at least 0
    counts      (BINS,) number of values in each bin
    shape       shape of the tensor in the last batch
    """

    upper_edge: float = 0.0
    low: float = 0.0
    high: float = 0.0
    counts: np.ndarray = field(default_factory=lambda: np.zeros(BINS, np.int64))
    shape: tuple = ()

    def add(self, values):
        """Count the finite values of an array of any shape.

        Infinities (those of a mask, say) and NaN are left out, because no range can contain them.
        """
        self.shape = values.shape
        values = values[np.isfinite(values)]
        if not values.size:
            return
        self.low = min(self.low, float(values.min()))
        self.high = max(self.high, float(values.max()))

        # The first batch sets the upper edge. A larger value doubles it: two old bins become one
        # new bin.
        largest = max(-self.low, self.high)
        if self.upper_edge == 0:
            self.upper_edge = largest
        while self.upper_edge < largest:
            self.upper_edge *= 2
            merged = self.counts.reshape(-1, 2).sum(1)
            self.counts = np.concatenate([merged, np.zeros(BINS // 2, np.int64)])

        # The largest value itself belongs into the last bin.
        bins_per_unit = np.float32(BINS / max(self.upper_edge, TINY))
        bins = (np.abs(values) * bins_per_unit).astype(np.int64)
        self.counts += np.bincount(np.minimum(bins, BINS - 1), minlength=BINS)

    @property
    def edges(self):
        """Return the edges of the bins, an array (BINS + 1,) from 0 to `upper_edge`."""
        return np.linspace(0, self.upper_edge, BINS + 1)

    def clipped(self, threshold):
        """Return the range (low, high) of the tensor, with both ends clipped to +-threshold."""
        return max(self.low, -threshold), min(self.high, threshold)


class ActivationHistograms(dict):
    """A dictionary {name: `Histogram`} of the float activations of a network.

    description  a text that names the data on which the network was run
    """

    description = "unknown"


def observe(model: Any, data: Any) -> ActivationHistograms:
    """Run an ONNX model in fp32 and count its float activations. Returns `ActivationHistograms`.

    Only one batch and its activations are in memory at a time.

    model   a path or a ModelProto
    data    an `ImageSet` or a `Calibration`. If `data` is the result of an earlier `observe`, the
            model is not run, and `data` is returned unchanged
    Raises  LabError: the batches do not fit the inputs of the model; the model has no activation of
            float32
    """
    if isinstance(data, ActivationHistograms):
        return data
    data = Calibration.of(data)
    histograms = ActivationHistograms()
    histograms.description = data.description
    for name, values in activations(model, data):
        if name not in histograms:
            histograms[name] = Histogram()
        histograms[name].add(values)
    return histograms


def activations(model, data, names=None):
    """Run an ONNX model batch by batch. Yields (name, array) for each tensor of each batch.

    model   a path or a ModelProto
    data    a `Calibration`
    names   names of the tensors to yield; None: all float activations and all float inputs
    Raises  LabError: `names` is None, and the model has no float activation
    """
    import onnx

    model = onnx.shape_inference.infer_shapes(checked(model))  # a copy
    graph = model.graph
    values_info = {value.name: value for value in (*graph.output, *graph.value_info, *graph.input)}

    # By default every float tensor that depends on the input: constants are not activations.
    if names is None:
        names = []
        computed_names = {name for node in graph.node for name in node.output}
        computed_names.update(value.name for value in graph.input)
        for name in sorted(computed_names & set(values_info)):
            if values_info[name].type.tensor_type.elem_type == onnx.TensorProto.FLOAT:
                names.append(name)
        if not names:
            raise LabError(
                "Nothing of the network can be quantized.",
                expected="activations of float32",
                found="none",
                fix="export the network in float32: network.float()",
            )
    names = list(names)

    # ONNX Runtime returns only outputs of the graph, so the tensors become outputs.
    output_names = {value.name for value in graph.output}
    for name in sorted(set(names) - output_names):
        graph.output.append(values_info[name])

    network = session(model)
    for batch in data.batches:
        yield from zip(names, answers(network, batch, outputs=names), strict=True)


def _largest_threshold(histogram):
    """Return the upper edge of the histogram, so that no value is clipped."""
    return histogram.upper_edge


def _percentile_threshold(histogram, percentile=PERCENTILE):
    """Return the smallest bin edge below which lie `percentile` percent of the absolute values."""
    shares = np.cumsum(histogram.counts) / histogram.counts.sum()
    last_bin = np.searchsorted(shares, percentile / 100)
    return float(histogram.edges[last_bin + 1])


def _entropy_threshold(histogram, *, levels=128, step=8):
    """Return the threshold whose clipped and quantized distribution is nearest to the observed one.

    A candidate for the threshold is an edge of a bin. For each candidate two distributions are
    compared. The first bin, which holds the exact zeros, is empty in both.

    P  the observed distribution, clipped: the bins up to the candidate. The counts of all bins
       beyond it are added to the last of these bins
    Q  the quantized distribution: the bins up to the candidate, without those counts, are merged
       into `levels` groups. Each group spreads its count evenly over those of its bins that were
       not empty

    The candidate with the smallest KL(P, Q) is returned. Source: Migacz 2017, "8-bit inference with
    TensorRT", GTC S7310

    levels  number of integers to which the absolute values are quantized
    step    number of bins between two candidates
    """
    counts = histogram.counts.astype(np.float64)
    # exact zeros (half of what a ReLU gives) fit on any grid and would outweigh everything else
    counts[0] = 0
    if counts.sum() == 0:
        return histogram.upper_edge
    end = int(np.flatnonzero(counts)[-1]) + 1  # end of the bins that are not empty
    end = max(end, levels)
    candidates = [*range(levels, end, step), end]
    divergences = [_divergence(counts, candidate, levels) for candidate in candidates]
    best = candidates[int(np.argmin(divergences))]
    return float(histogram.edges[best])


def _divergence(counts, end, levels):
    """Return KL(P, Q) in nats for one candidate, where P and Q are those of `_entropy_threshold`.

    The result is infinite if any bin is zero in Q and not in P.

    counts  (BINS,) counts of the histogram, with 0 in the first bin
    end     the candidate: number of bins that are not clipped
    levels  number of integers
    """
    from scipy.special import rel_entr

    # P: the histogram up to `end`, with everything beyond it in the last bin.
    inside = counts[:end]
    observed = inside.copy()
    observed[-1] += counts[end:].sum()

    # Q: each level shares its count equally among its bins that are not empty.
    level_of_bin = np.arange(end) * levels // end
    not_empty = inside > 0
    level_counts = np.bincount(level_of_bin, inside, levels)
    level_bins = np.bincount(level_of_bin, not_empty, levels)
    counts_per_bin = level_counts / np.maximum(level_bins, 1)
    quantized = np.where(not_empty, counts_per_bin[level_of_bin], 0.0)
    if not quantized.any():
        return np.inf
    return float(rel_entr(observed / observed.sum(), quantized / quantized.sum()).sum())


METHODS = {
    "minmax": _largest_threshold,
    "percentile": _percentile_threshold,
    "entropy": _entropy_threshold,
}


def ranges(
    histograms: dict[str, Histogram], method: str = "minmax"
) -> dict[str, tuple[float, float]]:
    """Return the range that the integer grid of each tensor should cover: {name: (low, high)}.

    histograms  {name: `Histogram`}, such as the result of `observe`
    method      "minmax": the range of all values. Nothing is clipped, but one outlier makes the
                grid coarse for all other values. "percentile": the range of the smallest 99.99
                percent of the absolute values. "entropy": the range whose clipping changes the
                distribution least, measured by the Kullback-Leibler divergence, as in TensorRT
    Raises      LabError: an unknown method
    """
    require_known(method, METHODS, "calibration method")
    threshold_of = METHODS[method]
    return {
        name: histogram.clipped(threshold_of(histogram)) for name, histogram in histograms.items()
    }
