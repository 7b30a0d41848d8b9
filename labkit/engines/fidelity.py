"""Does a file in small integers still answer like the network, and does an engine answer what the
file means?

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
# that the weakest channel may lose further in an engine: twice the noise of the file itself
FURTHER_DB = 3.0
SECONDS = 3600  # of computing, for a comparison in a process of its own
AS_WRITTEN = "the file as written"


@dataclass(frozen=True)
class Fidelity:
    """The likeness of the answers of two models in one output.

    db       SQNR of what varies in it (`labkit.export.variation`), infinite where nothing differs
    same     share of the items whose largest value stands at the same place of the classes, 0 to 1;
             None where no axis is known to hold classes, or where it is one class
    weakest  the `Channel` that lost most, None where there are no channels
    further  {name: `Fidelity`} of the outputs after the first
    """

    db: float
    same: float | None = None
    weakest: Channel | None = None
    further: dict = field(default_factory=dict)

    @property
    def lowest_db(self):
        """Return the figure that decides: the lowest of all outputs and their channels."""
        lowest = self.db if self.weakest is None else min(self.db, self.weakest.db)
        return min([lowest, *(output.lowest_db for output in self.further.values())])

    @property
    def whole_db(self):
        """Return the lowest figure of all outputs, each as a whole."""
        return min([self.db, *(output.whole_db for output in self.further.values())])

    def __str__(self):
        text = decibels(self.db)
        if self.weakest is not None and self.weakest.db < self.db:
            text += f" (lowest: {self.weakest})"
        if self.same is not None:
            text += f", same answer for {self.same:.1%}"
        return "; ".join([text, *(f"{name} {output}" for name, output in self.further.items())])


def between(right, answers, *, axis=None):
    """Return the `Fidelity` of answers to the right ones: arrays (N, ...), or {name of an output:
    array} for both.

    axis  that holds the classes; None: 1 for (N, classes), and not known otherwise. Channels are
          judged on axis 1 and on the last one, whatever the axis of the classes
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
    """True if an engine answers what a file in small numbers means, by the limit that `bench` has:
    `ENGINE_DB` in each output as a whole.

    Where the network makes much of little, another order of roundings changes the weakest channel
    by as much as the file has lost itself. That is no fault of the engine: it is one where the
    channel is `FURTHER_DB` further from the network in float than in the file.

    as_meant      of the engine's answers to the file's
    engine, file  of each to those of the network in float; None where the file cannot be run as it
                  is written
    """
    if not as_meant.whole_db >= ENGINE_DB:
        return False
    if as_meant.lowest_db >= ENGINE_DB or file is None:
        return True
    return engine.lowest_db >= file.lowest_db - FURTHER_DB


def of_engine(served, path, inputs):
    """Return the `Fidelity` of an engine's answers to what the file means.

    served  what `engines.load` made of the file
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
    """Compare a file in small numbers and its engines with `src`. Yields (name, `Fidelity` to it,
    another or a reason).

    The first is the file as written, with None and the reason where ONNX Runtime has no kernels for
    it. Then comes each engine for such files: with its `Fidelity` to the file, None where that was
    not compared; or None and the reason why the engine does not run here. All outputs that the
    engine gives are compared.

    src     the ONNX file in fp32
    inputs  (N, C, H, W) float32 that were not used to quantize; or a list of {input name: array},
            one for each call
    axis    as in `between`
    names   of engines; None: all for such files
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
    """Return in one line why an engine did not answer: what went wrong, and what was seen."""
    if not isinstance(error, LabError):
        return f"{type(error).__name__}: {error}"
    return f"{error.what.rstrip('.')} ({error.found})" if error.found else error.what


def _outputs(served, calls, first):
    """Return {name: array} of the outputs that an engine gives to all calls.

    first  the name of the first one, of which the answer of a call counts
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
    """Return the inputs as a list of calls: a tensor for each input of the network."""
    import torch

    if isinstance(inputs, list):
        return [tuple(map(torch.from_numpy, arrays.values())) for arrays in inputs]
    return [(batch,) for batch in torch.from_numpy(inputs).split(32)]


def quantized_apart(
    src: str | Path, dst: str | Path, inputs: Any, *, axis: int | None = None
) -> list[tuple]:
    """Do the work of `quantized` in a process of its own, and return its rows.

    An engine that ends its process gets a row with the reason. Raises `ChildEnded` where the file
    as written does.
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
    """Return the path of a file that reaches `min_sqnr`; a file that does not is renamed, with a
    LabError.

    fidelity  the `Fidelity` of its answers; each channel of each output must reach the limit
    rejected  the new name; None: the file's own, with ".rejected" before its ending
    fix       what the user may try; only the caller knows what was tried
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
