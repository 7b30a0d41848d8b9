"""Compare a quantized file with its network, and an engine's answers with those of the file.

A file with Q/DQ nodes says where every value is rounded. An engine may compute something else: on a
CPU without VNNI instructions, products of 8 bits are added in 16 bits, which can overflow. Then the
answers are wrong, at full speed and without a warning. So the first answers of an INT8 engine are
compared with those of the file, run as it is written. That run has no integer kernels and cannot
overflow.

Unit    SQNR in dB: the power of what varies in the right answers, over the power of the
        difference. 6 dB is a factor of 2 in size
Limits  an engine may round some sums in another order, which costs little: 25 dB and more were
        seen. After an overflow it was below 5 dB
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
from labkit.export.inputs import graph_inputs
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
    """How alike two models answer: in one output, and in the outputs after it.

    db       SQNR of the output in dB, as in `labkit.export.variation`; infinite if nothing differs
    same     share of the answers, 0 to 1, in which both models have the largest value at the same
             class. None if no axis is known to hold classes, or if there is only one class
    weakest  the `Channel` with the lowest SQNR; None if no channel has a figure
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
        """Return the lowest SQNR of all outputs, in dB, each output taken as a whole."""
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

    right, answers  two arrays (N, ...), or two dictionaries {name of an output: array}
    axis            the axis that holds classes. None: axis 1 of an array (N, classes), no axis of
                    any other array. It does not matter for the channels: these are always those of
                    axis 1 and of the last axis
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
    """Return True if an engine's answers are near enough to those of a quantized file.

    Each output as a whole must reach `ENGINE_DB`, the limit of `labkit bench`. So must the weakest
    channel, with one exception. In some networks small differences grow: then another order of
    roundings changes the weakest channel as much as the quantization itself does, which is no fault
    of the engine. So the engine also passes if its weakest channel, compared with the network in
    float, is at most `FURTHER_DB` below the weakest channel of the file.

    as_meant  `Fidelity` of the engine's answers to the file's answers
    engine    `Fidelity` of the engine's answers to those of the network in float
    file      `Fidelity` of the file's answers to those of the network in float. None if the file
              cannot be run as it is written: then only the whole outputs are judged
    """
    if not as_meant.whole_db >= ENGINE_DB:
        return False
    if as_meant.lowest_db >= ENGINE_DB or file is None:
        return True
    return engine.lowest_db >= file.lowest_db - FURTHER_DB


def of_engine(served, path, inputs):
    """Compare the first output of an engine with that of the file as it is written.

    Returns a `Fidelity`.

    served  the `Served` that `engines.load` made of the file
    path    the ONNX file
    inputs  a batch: one tensor for each input of the network
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
    """Compare a quantized file, and each engine that runs it, with the file in fp32.

    Yields tuples of three. The first is for the quantized file, run as it is written:
    - (`AS_WRITTEN`, its `Fidelity` to `src`, None)
    - (`AS_WRITTEN`, None, the reason) if ONNX Runtime has no kernels for it

    Then comes one tuple for each engine, with all outputs that the engine gives:
    - (name, its `Fidelity` to `src`, its `Fidelity` to `dst` as it is written). The last is None if
      `dst` could not be run as it is written
    - (name, None, the reason) if the engine does not run here, or fails

    src     the ONNX file in fp32
    dst     the quantized file that was made from `src`
    inputs  (N, C, H, W) float32 that were not used to quantize. Or a list of {input name: array},
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
    model = export.checked(dst)
    precision = export.precision_of(model)
    if names is None:
        names = engines.names(runs="onnx", precision=precision)
    calls = _calls(inputs, model)
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
    """Return a text that says why an engine did not answer.

    It has the summary of the error, and what was found, in one line.
    """
    if not isinstance(error, LabError):
        return f"{type(error).__name__}: {error}"
    return f"{error.what.rstrip('.')} ({error.found})" if error.found else error.what


def _outputs(served, calls, first):
    """Run an engine on several calls. Returns {name of an output: array}, with the calls joined.

    served  the `Served` of the engine
    calls   a list of tuples of tensors
    first   name of the first output. Its values are those of `served(...)`, in float32
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


def _calls(inputs, model):
    """Return inputs as a list of calls: tuples with one tensor for each input of the network.

    The tensors of a call have the order of the file's inputs.

    inputs  as in `quantized`; an array is cut into calls of 32 items
    model   the ModelProto of the file
    """
    import torch

    if isinstance(inputs, list):
        names = [value.name for value in graph_inputs(model)]
        return [tuple(torch.from_numpy(arrays[name]) for name in names) for arrays in inputs]
    return [(batch,) for batch in torch.from_numpy(inputs).split(32)]


def quantized_apart(
    src: str | Path, dst: str | Path, inputs: Any, *, axis: int | None = None
) -> list[tuple]:
    """Do the work of `quantized` in a separate process. Returns its tuples as a list.

    If an engine crashes the process, its tuple has the reason. Raises `ChildEnded` if the process
    crashes while it runs the file as it is written.
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
    """Return the tuples of `quantized` as a list. The separate process runs this function.

    sound_files  the result of `known_as_sound` in the parent process
    """
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
    """Check that a quantized file reaches the limit `min_sqnr`. Returns its path.

    A file below the limit is renamed, and LabError is raised.

    fidelity  the `Fidelity` of the file's answers. Each output and each channel must reach the
              limit
    path      path of the file
    min_sqnr  the limit in dB
    rejected  the new name of a file below the limit. None: its own name, with ".rejected" before
              the ending
    fix       text for the error message: what the user may try next
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
