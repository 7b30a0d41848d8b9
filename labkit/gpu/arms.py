"""An arm, which is one line of a table of measurements, and the comparison of two arms."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from labkit.gpu.record import label
from labkit.gpu.timing import interval

MAX_COMPARED = 2**20  # numbers of an output that are compared


@dataclass(frozen=True)
class Arm:
    """One of the variants that an experiment compares: a line of a table.

    variant     the variant, in the words of the published table
    batch       number of items in a call
    image_size  pixels a side; None where there are no images
    precision   "fp32" as torch computes by default (on a GPU convolutions in TF32, products not),
                "fp16", "amp-fp16", ...
    compiled    True where torch.compile compiled the function
    network     name of the network; None where there is none
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
        """Return the name of the arm for people and for rows of ratios."""
        return label(self.variant, self.compiled)


@dataclass
class Ready:
    """The function of an arm that was called until it was warm, ready to be timed.

    run         function without arguments; a call does the arm's work `inner` times
    inner       how many times a call does the work, such as 16 in a CUDA graph
    calls       number of calls that make one sample
    output      first numbers of the function's output, float32 on the CPU, to compare arms; None
                where the output is no tensor
    peak_bytes  most bytes of GPU memory that the arm took; None on a CPU
    facts       further fields of the arm's rows
    """

    run: Callable
    inner: int
    calls: int
    output: torch.Tensor | None
    peak_bytes: int | None
    facts: dict


def described(arm):
    """Return an arm in one line, which is different for each arm of an item."""
    side = f", {arm.image_size} px" if arm.image_size else ""
    return f"{arm.label}, {arm.precision}{side}, batch {arm.batch}"


def median_ms(prepared_arm, times):
    """Return the median time in which an arm does its work once, in ms.

    times  milliseconds per call
    """
    return float(interval(times).median) / prepared_arm.inner


def baseline_label(baseline, arm):
    """Return the label of an arm's baseline, with its precision where the two precisions differ."""
    same = replace(baseline, precision=arm.precision) == baseline
    return baseline.label if same else f"{baseline.label}, {baseline.precision}"


def difference(expected, output):
    """Return the largest difference of two outputs, relative to the largest value of `expected`.

    Where `expected` holds only zeros, the difference itself is returned. The result is None where
    an output is None, where the shapes differ, and where the difference is not finite.
    """
    if expected is None or output is None or expected.shape != output.shape:
        return None
    largest = expected.abs().max().item()
    deviation = (expected - output).abs().max().item()
    relative = deviation / largest if largest else deviation
    return relative if math.isfinite(relative) else None
