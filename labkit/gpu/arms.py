"""Define arms, the variants that an experiment compares, and functions that compare two of them."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from labkit.gpu.record import label
from labkit.gpu.timing import interval

MAX_COMPARED = 2**20  # numbers of an output that are compared


@dataclass(frozen=True)
class Arm:
    """One of the variants that an experiment compares: one line of its table.

    experiment  key of the experiment
    variant     the variant, in the words of the published table
    batch       number of items in a call
    image_size  pixels a side; None if there are no images
    precision   "fp32", "fp16", "amp-fp16", ... "fp32" is torch's default: on a GPU it computes
                convolutions in TF32, matrix products in fp32
    compiled    True if the function was compiled by torch.compile
    network     name of the network; None if there is none
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
        """Return the name of the arm, as people and the rows of ratios know it."""
        return label(self.variant, self.compiled)


@dataclass
class Ready:
    """An arm whose function has been called until it was warm. It can be timed at once.

    run         function () that does the arm's work `inner` times
    inner       how often one call does the work, such as 16 if a CUDA graph of 16 repetitions is
                replayed
    calls       number of calls that are timed together as one sample
    output      the first numbers of the function's output, float32 on the CPU, to compare arms;
                None if the output is no tensor
    peak_bytes  largest GPU memory that the arm took, in bytes; None on a CPU
    facts       further fields for the arm's rows, {name: value}
    """

    run: Callable
    inner: int
    calls: int
    output: torch.Tensor | None
    peak_bytes: int | None
    facts: dict


def described(arm):
    """Return a line of text about an arm; each arm of an item has a different one."""
    side = f", {arm.image_size} px" if arm.image_size else ""
    return f"{arm.label}, {arm.precision}{side}, batch {arm.batch}"


def median_ms(prepared_arm, times):
    """Return the median time, in ms, in which an arm does its work once.

    prepared_arm  the `Ready` arm
    times         milliseconds per call, one for each sample. A call may do the work several times
    """
    return float(interval(times).median) / prepared_arm.inner


def baseline_label(baseline, arm):
    """Return the label of the baseline with which an arm is compared.

    If the two differ in precision, the label names the precision of the baseline as well.

    baseline, arm  two `Arm`s
    """
    same = replace(baseline, precision=arm.precision) == baseline
    return baseline.label if same else f"{baseline.label}, {baseline.precision}"


def difference(expected, output):
    """Return the largest difference of two outputs, relative to the largest value of `expected`.

    If `expected` holds only zeros, the difference itself is returned. The result is None if an
    output is None, if the shapes differ, or if the difference is not finite.

    expected, output  tensors or None
    """
    if expected is None or output is None or expected.shape != output.shape:
        return None
    largest = expected.abs().max().item()
    deviation = (expected - output).abs().max().item()
    relative = deviation / largest if largest else deviation
    return relative if math.isfinite(relative) else None
