"""Does an engine answer what a file says? If not: the first operator that it computes in another
way.

An engine may ignore an attribute of an operator, pad in another way, or overflow, without a word.
So its answers are compared with those of ONNX Runtime without any optimization, on the inputs of
the measurement and on others, before a time is believed.
"""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from labkit import export
from labkit.engines import fidelity
from labkit.engines._first_difference import first_difference
from labkit.errors import LabError
from labkit.export.runtime import answers
from labkit.files import sha256
from labkit.measure.variation import ROUNDING

# SQNR in dB. In fp32 on a CPU, engines were seen to agree within 105 dB; a GPU may round products
# to TF32.
EXACT_DB = 60.0
ON_GPU_DB = 40.0

CONSTANT = (
    "Its answers do not vary with its inputs: batches of other numbers get the same answers, to "
    "the last digit. "
    "So no wrong answer would be seen, and its time is of no use"
)

_verdicts: dict[tuple, tuple] = {}  # of this process, by the file's content


def disagreement(
    served: Any, path: str | Path, inputs: tuple, load: Callable
) -> tuple[float | None, str | None]:
    """Compare an engine with the file as it is written, once per file, engine and shape of the
    inputs.

    served  what `engines.load` made of the file
    inputs  a batch: one tensor per input of the network
    load    function (path of another file, example) -> what the same engine makes of it
    Returns (the least SQNR of its answers in dB, None) where they agree; (it, the reason with the
    operator) where they differ; (None, the reason) where the file ignores its inputs; (None, None)
    where it cannot be run as it is written, so that nothing is known.
    """
    shapes = tuple(tuple(tensor.shape) for tensor in inputs)
    key = (sha256(Path(path)), served.engine, served.precision, served.device, shapes)
    if key not in _verdicts:
        _verdicts[key] = _compare(served, path, inputs, load)
    return _verdicts[key]


def limit_db(served):
    """Return the SQNR that an engine has to reach: in fp32 it may differ by rounding only."""
    if served.precision != "fp32":
        return fidelity.ENGINE_DB
    return EXACT_DB if served.device.startswith("cpu") else ON_GPU_DB


def _compare(served, path, inputs, load):
    """Do the work of `disagreement`, without its memory."""
    batches = [inputs, _second_batch(inputs)]
    # nearly black: small integers make little of it, and round it in their own ways
    if served.precision == "fp32":
        batches.append(_dark_batch(inputs))
    try:
        right_answers = [(batch, _right_answers(path, batch)) for batch in batches]
    except LabError:
        return None, None
    if _ignores_inputs(right_answers):
        return None, CONSTANT
    least = np.inf
    for batch, right in right_answers:
        engine_answers = _answers(served, batch, next(iter(right)))
        for name in (name for name in right if name in engine_answers):
            db, limit = _agreement(right[name], engine_answers[name], served)
            if not db >= limit:
                reason = (
                    f"It answers something else than the file means: {db:.1f} dB, expected "
                    f"{limit:g} dB"
                )
                operator = first_difference(path, batch, load, name, agrees=_agree)
                return db, f"{reason}. {operator}"
            least = min(least, db)
    return least, None


def _right_answers(path, batch):
    """Return {name: tensor} of the outputs of a file that are tensors, run without optimizations;
    the first one first.

    The last sessions are kept open.
    """
    import torch

    opened = _session_of(sha256(Path(path)), str(path))
    first, *further = opened.get_outputs()
    names = [first.name, *(output.name for output in further if output.type.startswith("tensor("))]
    arrays = answers(opened, tuple(tensor.cpu().numpy() for tensor in batch), outputs=names)
    return dict(zip(names, map(torch.from_numpy, arrays), strict=True))


def _ignores_inputs(right_answers):
    """Return True where batches that differ got the same answers, number for number: nothing could
    be compared.

    right_answers  [(batch, {name: tensor})], of at least two batches
    """
    import torch

    (first_batch, first_answers), *further = right_answers
    inputs_differ = False
    for batch, named_answers in further:
        if any(not torch.equal(named_answers[name], first_answers[name]) for name in first_answers):
            return False
        inputs_differ |= not all(map(torch.equal, batch, first_batch))
    return inputs_differ


def _answers(served, batch, first):
    """Return {name: tensor} of the outputs that an engine gives; `first` is the name of the
    first output.
    """
    by_name = {first: served(*batch)}
    if served.run_whole is not None:
        by_name = {**served.run_whole(*batch), **by_name}
    return by_name


@functools.lru_cache(maxsize=2)
def _session_of(digest, path):
    export.checked(path)
    return export.session(path, "none")


def _second_batch(inputs):
    """Return another batch of the same shapes: floats from 0 to 1, as of pictures; integers in
    reverse order.
    """
    import torch

    generator = torch.Generator().manual_seed(1)
    batch = []
    for tensor in inputs:
        if tensor.is_floating_point():
            values = torch.rand(tensor.shape, generator=generator)
            batch.append(values.to(tensor.dtype).to(tensor.device))
        else:
            reverse = np.flip(tensor.cpu().numpy()).copy()
            batch.append(torch.from_numpy(reverse).to(tensor.device))
    return tuple(batch)


def _dark_batch(inputs):
    """Return another batch of the same shapes, nearly black: where many numbers are equal, their
    order may differ.

    Of floats all are 0 but about one of 32, from 0 to 1. Integers stay.
    """
    import torch

    generator = torch.Generator().manual_seed(2)
    dark = []
    for tensor in inputs:
        if tensor.is_floating_point():
            values = (32 * torch.rand(tensor.shape, generator=generator) - 31).clamp(min=0)
            tensor = values.to(tensor.dtype).to(tensor.device)
        dark.append(tensor)
    return tuple(dark)


def _agreement(right, answer, served):
    """Return the SQNR of an engine's answer, and the least that is enough, in dB.

    In fp32 it is the weakest channel's where that is too low: one whose variation is lost in the
    figure of the whole.
    """
    db, limit = _agreement_db(right, answer), limit_db(served)
    if served.precision != "fp32" or not db >= limit:
        return db, limit

    # What rounding explains counts as equal: in a channel that hardly varies it would be much.
    right = right.cpu().double()
    answer = answer.cpu().double()
    if not right.ndim or not right.isfinite().all():
        return db, limit
    rounding = ROUNDING * right.abs().amax(0, keepdim=True)
    rounded = right.where((answer - right).abs() <= rounding, answer)
    weakest = fidelity.between(
        np.atleast_1d(right.numpy()), np.atleast_1d(rounded.numpy())
    ).lowest_db
    if weakest < fidelity.ENGINE_DB:
        return weakest, fidelity.ENGINE_DB
    return db, limit


def _agree(right, answer, served):
    """Return True where an engine's answer counts as the same."""
    db, limit = _agreement(right, answer, served)
    return db >= limit


def _agreement_db(right, answer):
    """Return the SQNR of an answer in dB: -inf for another shape, or a number that is not finite
    where it should be.
    """
    right = right.cpu().double().numpy()
    answer = answer.cpu().double().numpy()
    if right.shape != answer.shape:
        return -np.inf
    same = (right == answer) | (np.isnan(right) & np.isnan(answer))
    if same.all():
        return np.inf
    if not np.isfinite(right[~same]).all() or not np.isfinite(answer[~same]).all():
        return -np.inf

    # Numbers that are not finite are equal in both: they do not count. A single number is a row of
    # its own.
    both_finite = np.isfinite(right)
    right = np.atleast_1d(np.where(both_finite, right, 0))
    answer = np.atleast_1d(np.where(both_finite, answer, 0))
    compared = fidelity.between(right, answer)
    return compared.db
