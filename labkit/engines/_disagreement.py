"""Does an engine answer what a file says, or a torch module? If not: the first operator of the
file that it computes in another way.

An engine may ignore an attribute of an operator, pad in another way, or overflow, without a word.
So each of its outputs is compared with ONNX Runtime without any optimization, or with the module
run by torch in fp32, on the inputs of the measurement and on others, before a time is believed.
"""

import functools
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from labkit import export
from labkit.engines import fidelity
from labkit.engines._first_difference import first_difference
from labkit.engines._varied_batches import dark_batch, further_batches, second_batch
from labkit.engines.served import named_tensors
from labkit.errors import LabError
from labkit.export.runtime import answers
from labkit.export.variation import ROUNDING
from labkit.files import sha256

# SQNR in dB. In fp32 on a CPU, engines were seen to agree within 105 dB; a GPU may round products
# to TF32.
EXACT_DB = 60.0
ON_GPU_DB = 40.0

_verdicts: dict[tuple, "Verdict"] = {}  # of this process, by the file's content


@dataclass(frozen=True)
class Verdict:
    """What a comparison of an engine's answers says.

    db         the least SQNR of its outputs in dB; None where nothing was compared
    reason     why the engine gets no time; None where it may be timed
    unchecked  outputs of which the comparison says nothing, and why; None where it says something
               of all
    """

    db: float | None = None
    reason: str | None = None
    unchecked: str | None = None


def disagreement(
    served: Any, network: Any, inputs: tuple, load: Callable, user_batches: Iterable[tuple] = ()
) -> Verdict:
    """Compare an engine with a network: with a file as it is written, once per file, engine and
    inputs; or with a torch module.

    served        what `engines.load` made of the network
    network       the path of an ONNX file, or a torch module
    inputs        a batch: one tensor per input of the network
    load          function (path of another file, example) -> what the same engine makes of it
    user_batches  further batches of the user's
    Returns       a `Verdict` without a reason where the engine agrees. Its reason names the
                  operator of a file where they differ, and the outputs where none varies with the
                  inputs
    """
    if not isinstance(network, (str, Path)):
        return _compare(served, network, inputs, load, user_batches)
    content = tuple((tuple(tensor.shape), zlib.crc32(tensor.cpu().numpy())) for tensor in inputs)
    key = (sha256(Path(network)), served.engine, served.precision, served.device, content)
    if key not in _verdicts:
        _verdicts[key] = _compare(served, network, inputs, load, user_batches)
    return _verdicts[key]


def limit_db(served):
    """Return the SQNR that an engine has to reach: in fp32 it may differ by rounding only."""
    if served.precision != "fp32":
        return fidelity.ENGINE_DB
    return EXACT_DB if served.device.startswith("cpu") else ON_GPU_DB


def _compare(served, network, inputs, load, user_batches=()):
    """Do the work of `disagreement`, without its memory."""
    # The right answers, with as many batches as each output takes to vary.
    batches = [inputs, second_batch(inputs)]
    # nearly black: small integers make little of it, and round it in their own ways
    if served.precision == "fp32":
        batches.append(dark_batch(inputs))
    try:
        right_answers = [(batch, _right_answers(network, batch)) for batch in batches]
        constant = _constant_outputs(right_answers)
        for batch in chain(user_batches, further_batches(inputs)):
            if not constant:
                break
            further = (batch, _right_answers(network, batch))
            still_constant = _constant_outputs([right_answers[0], further]) & constant
            if still_constant != constant:  # what makes an output vary is compared, too
                right_answers.append(further)
                constant = still_constant
    except LabError as error:
        return Verdict(
            unchecked=f"nothing: ONNX Runtime cannot run the file as it is written "
            f"({error.found or error.what})"
        )
    names = list(right_answers[0][1])
    if constant == set(names):
        return Verdict(reason=_of_constant(names, constant))

    # Each output of the engine on each batch.
    least = np.inf
    missing = set()
    for batch, right in right_answers:
        engine_answers = _answers(served, batch, right, of_module=not _is_file(network))
        missing |= set(names) - set(engine_answers)
        for name in (name for name in names if name in engine_answers):
            db, limit = _agreement(right[name], engine_answers[name], served)
            if not db >= limit:
                reason = _of_difference(db, limit, name, network)
                if _is_file(network):
                    operator = first_difference(network, batch, load, name, agrees=_agree)
                    reason = f"{reason}. {operator}"
                return Verdict(db, reason)
            least = min(least, db)
    unchecked = []
    if constant:
        unchecked.append(_of_constant(names, constant))
    if missing:
        unchecked.append(f"{served.engine} does not give {_listed(names, missing)}")
    no_tensors = _outputs_without_numbers(network) if _is_file(network) else []
    if no_tensors:
        unchecked.append(f"{_listed(no_tensors, no_tensors)}, which is no tensor")
    return Verdict(float(least), unchecked="; ".join(unchecked) or None)


def _is_file(network):
    return isinstance(network, (str, Path))


def _listed(names, chosen):
    """Return the chosen names of outputs in their order: "the output 'logits'"."""
    quoted = [repr(name) for name in names if name in chosen]
    return f"the output{'s' if len(quoted) > 1 else ''} {', '.join(quoted)}"


def _of_constant(names, constant):
    """Return the sentence about outputs that do not vary, and what to do."""
    if constant == set(names):
        return (
            f"Its answers do not vary with its inputs: batches of other numbers get the same "
            f"numbers in {_listed(names, constant)}, up to rounding. So no wrong answer would be "
            "seen, and its time is of no use. Give inputs with which they vary (--data), or make "
            "the network anew"
        )
    return (
        f"{_listed(names, constant)}, which does not vary with the inputs: a wrong answer there "
        "would not be seen. Give inputs with which it varies (--data), or export the network "
        "without it"
    )


def _of_difference(db, limit, name, network):
    meant = "the file means" if _is_file(network) else "the torch module"
    return (
        f"It answers something else than {meant}: {db:.1f} dB in the output {name!r}, expected "
        f"{limit:g} dB"
    )


def _right_answers(network, batch):
    """Return {name: tensor} of the outputs that are tensors, the first one first: of a file run
    without optimizations, or of a torch module in fp32.

    The last sessions of files are kept open.
    """
    import torch

    if not _is_file(network):
        with torch.inference_mode():
            return named_tensors(network(*batch))
    opened = _session_of(sha256(Path(network)), str(network))
    first, *further = opened.get_outputs()
    names = [first.name, *(output.name for output in further if output.type.startswith("tensor("))]
    arrays = answers(opened, tuple(tensor.cpu().numpy() for tensor in batch), outputs=names)
    return dict(zip(names, map(torch.from_numpy, arrays), strict=True))


def _outputs_without_numbers(path):
    """Return the names of a file's outputs that are no tensors, such as a sequence of maps."""
    outputs = _session_of(sha256(Path(path)), str(path)).get_outputs()
    return [output.name for output in outputs if not output.type.startswith("tensor(")]


def _constant_outputs(right_answers):
    """Return the names of outputs that have the same numbers, up to rounding, in all batches.

    right_answers  [(batch, {name: tensor})]
    """
    (_, first), *further = right_answers
    return {
        name
        for name in first
        if all(_same_numbers(first[name], answers_[name]) for _, answers_ in further)
    }


def _same_numbers(answer, other):
    """Return True where two answers differ by rounding only."""
    if answer.shape != other.shape:
        return False
    if not answer.is_floating_point():
        return bool((answer == other).all())
    return bool(
        answer.double().isclose(other.double(), rtol=ROUNDING, atol=0, equal_nan=True).all()
    )


def _answers(served, batch, right, *, of_module):
    """Return {name: tensor} of the outputs that an engine gives, by the names of the right answers.

    of_module  the outputs of a module have no names in an engine: their order counts
    """
    first = next(iter(right))
    by_name = {first: served(*batch)}
    if served.run_whole is None:
        return by_name
    answers_of_engine = served.all_outputs(*batch)
    if of_module:
        in_order = list({id(tensor): tensor for tensor in answers_of_engine.values()}.values())
        if len(in_order) != len(right):
            return by_name
        answers_of_engine = dict(zip(right, in_order, strict=True))
    return {**answers_of_engine, **by_name}


@functools.lru_cache(maxsize=2)
def _session_of(digest, path):
    export.checked(path)
    return export.session(path, "none")


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
