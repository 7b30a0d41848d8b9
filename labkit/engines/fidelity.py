"""Compare a file in small integers with its network, and an engine with what the file means.

A file with Q/DQ nodes says where every value is rounded. An engine may compute it in another way:
on a CPU without VNNI instructions, products of 8 bits are added in 16, which can overflow. Then it
answers something else, at full speed and without a word. So the first answers of an INT8 engine are
compared with the file run as it is written, which has no integer kernels and cannot overflow.

Unit    SQNR in dB: power of what varies in the right answers over the power of the difference; 6 dB
        is a factor of 2
Limits  an engine rounds some sums in another order, which costs little: 25 dB and more were seen.
        After an overflow it was below 5 dB
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from labkit import engines, export
from labkit.device.child import ChildEnded, run_in_child
from labkit.errors import LabError
from labkit.export.gate import known_as_sound, trust
from labkit.export.runtime import without_kernel
from labkit.export.variation import Channel, decibels, likeness
from labkit.quantize import all_outputs

ENGINE_DB = 20.0  # below it, an engine does not answer what the file means
# so much more may the weakest channel lose in an engine than in the file: 3 dB is twice the noise
FURTHER_DB = 3.0
SECONDS = 3600  # of computing: the limit of a comparison in a process of its own
AS_WRITTEN = "the file as written"


@dataclass(frozen=True)
class Fidelity:
    """How alike two models answer in one output, and in the outputs after it.

    db       SQNR in dB of what varies in the output (`labkit.export.variation`), infinite where
             nothing differs
    same     share of the items, 0 to 1, for which both models have the largest value at the same
             class; None where no axis is known to hold classes, or where there is one class
    weakest  the `Channel` with the lowest SQNR, None where there are no channels
    further  {name: `Fidelity`} of the outputs after the first
    """

    db: float
    same: float | None = None
    weakest: Channel | None = None
    further: dict = field(default_factory=dict)

    @property
    def lowest_db(self):
        """Return the lowest SQNR, in dB, of all outputs and of all their channels."""
        lowest = self.db if self.weakest is None else min(self.db, self.weakest.db)
        return min([lowest, *(output.lowest_db for output in self.further.values())])

    @property
    def whole_db(self):
        """Return the lowest SQNR, in dB, of all outputs, without a look at single channels."""
        return min([self.db, *(output.whole_db for output in self.further.values())])

    def __str__(self):
        text = decibels(self.db)
        if self.weakest is not None and self.weakest.db < self.db:
            text += f" (lowest: {self.weakest})"
        if self.same is not None:
            text += f", same answer for {self.same:.1%}"
        return "; ".join([text, *(f"{name} {output}" for name, output in self.further.items())])


def between(right, answers, *, axis=None):
    """Return the `Fidelity` of a model's answers to the right answers.

    right, answers  arrays (N, ...), or {name of an output: array} both times
    axis            the axis of the classes; None: axis 1 of arrays (N, classes), otherwise no axis.
                    Channels are judged on axis 1 and on the last axis, whatever the axis of the
                    classes
    """
    if isinstance(right, dict):
        first_output, *further_outputs = right
        first = between(right[first_output], answers[first_output], axis=axis)
        further = {name: between(right[name], answers[name], axis=axis) for name in further_outputs}
        return replace(first, further=further)
    if axis is None and right.ndim == 2:
        axis = 1
    same = None
    if axis is not None and axis < right.ndim and right.shape[axis] > 1:
        same = float((right.argmax(axis) == answers.argmax(axis)).mean())
    alike = likeness(right, answers)
    return Fidelity(alike.db, same, alike.weakest)


def answers_as_meant(as_meant: Fidelity, engine: Fidelity, file: Fidelity | None) -> bool:
    """Return True if an engine answers what a file in small numbers means.

    Each output as a whole must reach `ENGINE_DB`, the limit of `labkit bench`. So must each
    channel, with one exception. Where the network amplifies small differences, another order of
    roundings changes the weakest channel by as much as the file itself has lost, and that is no
    fault of the engine. So a channel also passes that is at most `FURTHER_DB` further from the
    network in float than in the file.

    as_meant  `Fidelity` of the engine's answers to the file's answers
    engine    `Fidelity` of the engine's answers to those of the network in float
    file      `Fidelity` of the file's answers to those of the network in float; None where the file
              cannot be run as it is written: then only the whole outputs count
    """
    if not as_meant.whole_db >= ENGINE_DB:
        return False
    if as_meant.lowest_db >= ENGINE_DB or file is None:
        return True
    return engine.lowest_db >= file.lowest_db - FURTHER_DB


def of_engine(served, path, inputs):
    """Return the `Fidelity` of an engine's answers to what the file means, for the first output.

    served  the `Served` that `engines.load` made of the file
    path    the ONNX file
    inputs  a batch: one tensor per input of the network
    """
    return between(export.as_written(path)(*inputs).numpy(), served(*inputs).cpu().numpy())


def quantized(
    src: str | Path,
    dst: str | Path,
    inputs: Any,
    *,
    axis: int | None = None,
    names: Iterable[str] | None = None,
) -> Iterator[tuple]:
    """Compare a file in small numbers, and the engines that run it, with the file in fp32.

    Yields tuples of three. The first tuple is (`AS_WRITTEN`, `Fidelity` of `dst` run as it is
    written, None); where ONNX Runtime has no kernels for `dst` it is (`AS_WRITTEN`, None, the
    reason). Then comes a tuple for each engine: (name, `Fidelity` to `src`, `Fidelity` to `dst` as
    written, or None where that could not be run). For an engine that does not run here it is (name,
    None, the reason). All outputs that the engine gives are compared.

    src     the ONNX file in fp32
    dst     the file in small numbers that was made from `src`
    inputs  (N, C, H, W) float32 that were not used to quantize; or a list of {input name: array},
            one for each call
    axis    the axis of the classes, as in `between`
    names   names of engines; None: all engines that run such files
    """
    # The file as written.
    right = all_outputs(src, inputs)
    meant = None
    try:
        meant = all_outputs(dst, inputs)
        yield AS_WRITTEN, between(right, meant, axis=axis), None
    except LabError as error:
        if not without_kernel(error):
            raise
        yield AS_WRITTEN, None, f"ONNX Runtime has no kernels for it: {error.found}"

    # Each engine, and what it does not run.
    precision = export.precision_of(export.checked(dst))
    if names is None:
        names = engines.names(runs="onnx", precision=precision)
    calls = _calls(inputs)
    for name in names:
        try:
            served = engines.load(name, dst, calls[0][0][:1], precision=precision)
            outputs = _outputs(served, calls, next(iter(right)))
        except Exception as error:  # an engine may fail in any way: the others go on
            yield name, None, reason_of(error)
        else:
            of_float = {output: right[output] for output in right if output in outputs}
            as_meant = meant and between({key: meant[key] for key in of_float}, outputs, axis=axis)
            yield name, between(of_float, outputs, axis=axis), as_meant


def reason_of(error: Exception) -> str:
    """Return in one line why an engine did not answer: what went wrong, and what was there."""
    if not isinstance(error, LabError):
        return f"{type(error).__name__}: {error}"
    return f"{error.what.rstrip('.')} ({error.found})" if error.found else error.what


def _outputs(served, calls, first):
    """Return the outputs that an engine gives to all calls: {name: array}.

    first  the name of the first output, whose values are those of a plain call, in float32
    """
    answers = []
    for call in calls:
        outputs = {} if served.run_whole is None else served.all_outputs(*call)
        answers.append(
            {first: served(*call), **{key: outputs[key] for key in outputs if key != first}}
        )
    return {
        name: np.concatenate([answer[name].cpu().numpy() for answer in answers])
        for name in answers[0]
    }


def _calls(inputs):
    """Return the inputs as a list of calls: a tuple of one tensor per input of the network.

    An array is cut into calls of 32 items.
    """
    import torch

    if isinstance(inputs, list):
        return [tuple(map(torch.from_numpy, arrays.values())) for arrays in inputs]
    return [(batch,) for batch in torch.from_numpy(inputs).split(32)]


def quantized_apart(
    src: str | Path, dst: str | Path, inputs: Any, *, axis: int | None = None
) -> list[tuple]:
    """Do the work of `quantized` in a process of its own, and return the tuples as a list.

    An engine that crashes its process gets a tuple with the reason. Raises `ChildEnded` where
    running the file as it is written crashes the process.
    """
    paths = Path(src).resolve(), Path(dst).resolve()
    rows = partial(_rows, *paths, inputs, axis, sound_files=known_as_sound())
    try:
        return run_in_child(rows, SECONDS)
    except ChildEnded:
        # the file as written, then each engine by itself
        compared = run_in_child(partial(rows, ()), SECONDS)
    for name in engines.names(runs="onnx", precision=export.precision_of(export.checked(dst))):
        try:
            compared += run_in_child(partial(rows, (name,)), SECONDS)[1:]
        except ChildEnded as error:
            compared.append((name, None, f"its process {error.found}"))
    return compared


def _rows(src, dst, inputs, axis, names=None, *, sound_files):
    """Return the tuples of `quantized` as a list: this is what the process of its own runs."""
    trust(sound_files)  # so that the child does not have them inspected again
    return list(quantized(src, dst, inputs, axis=axis, names=names))


def require(
    fidelity: Any,
    path: str | Path,
    min_sqnr: float,
    *,
    rejected: str | Path | None = None,
    fix: str | None = None,
) -> Path:
    """Return the path of a file that reaches `min_sqnr`; rename any other file and raise LabError.

    fidelity  the `Fidelity` of the file's answers; each channel of each output must reach the limit
    min_sqnr  the limit in dB
    rejected  the new name of a file that fails; None: its own name, with ".rejected" before the
              ending
    fix       what the user may try, for the message; only the caller knows what was tried
    """
    path = Path(path)
    if fidelity.lowest_db >= min_sqnr:
        return path
    rejected = Path(rejected or path.with_suffix(f".rejected{path.suffix}"))
    path.replace(rejected)
    raise LabError(
        "The quantized network does not answer like the original.",
        expected=f"at least {min_sqnr:g} dB of what varies, in each output and each "
        "of its channels",
        found=f"{fidelity}; the file is kept as {rejected.name}",
        fix=fix,
    )
