"""An arm, which is a line of a table; and how two arms are compared."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from labkit.gpu.record import label
from labkit.gpu.timing import interval

MAX_COMPARED = 2**20  # numbers of an output that are compared


@dataclass(frozen=True)
class Arm:
    """One way to do one thing: a line of a table.

    variant     what is different, in the words of the published table
    batch       items of a call
    image_size  pixels a side; None where there are no images
    precision   "fp32" as torch does it by default (on a GPU convolutions in TF32, products not),
                "fp16", "amp-fp16"
    compiled    by torch.compile
    network     its name; None where there is none
    """

    experiment: str
    variant: str
    batch: int = 1
    image_size: int | None = None
    precision: str = "fp32"
    compiled: bool = False
    network: str | None = None

    @property
    def label(self):
        """Return its name for people, and in ratios."""
        return label(self.variant, self.compiled)


@dataclass
class Ready:
    """An arm that was called: its function, how many of its calls make a sample, and its first
    output in part.

    inner  how many times a call does the work: the 16 of a CUDA graph, say
    facts  further fields of its rows
    """

    run: Callable
    inner: int
    calls: int
    output: torch.Tensor | None
    peak_bytes: int | None
    facts: dict


def described(arm):
    """Return an arm in one line, different for each arm of an item."""
    side = f", {arm.image_size} px" if arm.image_size else ""
    return f"{arm.label}, {arm.precision}{side}, batch {arm.batch}"


def median_ms(prepared_arm, times):
    """Return the median of an arm's times, of its work done once."""
    return float(interval(times).median) / prepared_arm.inner


def baseline_label(baseline, arm):
    """Return the label of an arm's baseline, with its precision where that differs from the
    arm's.
    """
    same = replace(baseline, precision=arm.precision) == baseline
    return baseline.label if same else f"{baseline.label}, {baseline.precision}"


def difference(expected, output):
    """Return the largest difference of two outputs, relative to the largest number of the first.

    Returns None for outputs of two shapes, and for a difference that is not finite.
    """
    if expected is None or output is None or expected.shape != output.shape:
        return None
    largest = expected.abs().max().item()
    deviation = (expected - output).abs().max().item()
    relative = deviation / largest if largest else deviation
    return relative if math.isfinite(relative) else None
