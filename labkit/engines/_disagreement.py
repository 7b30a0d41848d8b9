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
from labkit.engines._agreement import agree, agreement
from labkit.engines._first_difference import first_difference
from labkit.engines._varied_batches import (
    dark_batch,
    further_batches,
    made_up_batches,
    second_batch,
)
from labkit.engines.served import named_tensors
from labkit.errors import LabError
from labkit.export.runtime import answers, session_as_written
from labkit.export.variation import ROUNDING, decibels
from labkit.files import sha256

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


def _compare(served, network, inputs, load, user_batches=()):
    """Do the work of `disagreement`, without its memory."""
    # The right answers, with as many batches as each output takes to vary.
    in_small_numbers = _is_file(network) and served.precision != "fp32"
    user_batches = list(user_batches)
    batches = [inputs, second_batch(inputs)]
    if in_small_numbers and user_batches:
        batches = [inputs, *user_batches]
    elif in_small_numbers:
        batches = list(made_up_batches(export.checked(network), inputs))
    elif served.precision == "fp32":
        # nearly black: small numbers make little of it, and round it in their own ways
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
        return Verdict(reason=_of_constant(names, constant, of_user=bool(user_batches)))

    # Each output of the engine: on each batch, or in small numbers on all of them together, as
    # `labkit quantize` compares.
    compared = []
    missing = set()
    for batch, right in right_answers:
        engine_answers = _answers(served, batch, right, of_module=not _is_file(network))
        missing |= set(names) - set(engine_answers)
        compared.append((batch, right, engine_answers))
    least = np.inf
    for name in names:
        pairs = [
            (batch, right[name], answered[name])
            for batch, right, answered in compared
            if name in answered
        ]
        if in_small_numbers:
            pairs = _together(pairs, served)
        for batch, right, answer in pairs:
            db, limit = agreement(right, answer, served)
            if not db >= limit:
                reason = _of_difference(db, limit, name, network)
                if in_small_numbers and not user_batches:
                    reason = f"{reason}, on made-up examples (--data: on your own)"
                if _is_file(network):
                    operator = first_difference(network, batch, load, name, agrees=agree)
                    reason = f"{reason}. {operator}"
                return Verdict(db, reason)
            least = min(least, db)
    unchecked = []
    if constant:
        unchecked.append(_of_constant(names, constant, of_user=bool(user_batches)))
    if missing:
        unchecked.append(f"{served.engine} does not give {_listed(names, missing)}")
    no_tensors = _outputs_without_numbers(network) if _is_file(network) else []
    if no_tensors:
        unchecked.append(f"{_listed(no_tensors, no_tensors)}, which is no tensor")
    return Verdict(float(least), unchecked="; ".join(unchecked) or None)


def _together(pairs, served):
    """Return [(batch, right answer, answer)] as one whose answers are those of all batches; the
    batch is that with the largest difference. Answers that do not fit together stay apart.
    """
    shapes = {(right.shape[1:], answer.shape[1:]) for _, right, answer in pairs}
    if len(shapes) != 1 or not all(right.ndim and answer.ndim for _, right, answer in pairs):
        return pairs
    import torch

    worst = min(pairs, key=lambda pair: agreement(*pair[1:], served)[0])
    right = torch.cat([right.cpu() for _, right, _ in pairs])
    return [(worst[0], right, torch.cat([answer.cpu() for *_, answer in pairs]))]


def _is_file(network):
    return isinstance(network, (str, Path))


def _listed(names, chosen):
    """Return the chosen names of outputs in their order: "the output 'logits'"."""
    quoted = [repr(name) for name in names if name in chosen]
    return f"the output{'s' if len(quoted) > 1 else ''} {', '.join(quoted)}"


def _of_constant(names, constant, *, of_user):
    """Return the sentence about outputs that do not vary, and what to do.

    of_user  the inputs were the user's, not random ones
    """
    other_inputs = "other inputs" if of_user else "inputs of your own (--data)"
    if constant == set(names):
        return (
            f"Its answers do not vary with its inputs: batches of other numbers get the same "
            f"numbers in {_listed(names, constant)}, up to rounding. So no wrong answer would be "
            f"seen, and its time is of no use. Give {other_inputs} with which they vary, or make "
            "the network anew"
        )
    return (
        f"{_listed(names, constant)}, which does not vary with the inputs: a wrong answer there "
        f"would not be seen. Give {other_inputs} with which it varies, or export the network "
        "without it"
    )


def _of_difference(db, limit, name, network):
    meant = "the file means" if _is_file(network) else "the torch module"
    return (
        f"It answers something else than {meant}: {decibels(db)} in the output {name!r}, expected "
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

    right_answers  [(batch, {name: tensor})]; of a single one, both halves are compared
    """
    (_, first), *further = right_answers
    if not further:
        half = min(len(answer) if answer.ndim else 0 for answer in first.values()) // 2
        if not half:
            return set(first)
        further = [(None, {name: answer[half : 2 * half] for name, answer in first.items()})]
        first = {name: answer[:half] for name, answer in first.items()}
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
    return session_as_written(path)
