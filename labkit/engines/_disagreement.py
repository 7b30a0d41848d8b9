"""Compare an engine's answers with the right answers, those of an ONNX file or a torch module.

An engine may compute something else without a warning: it may ignore an attribute of an operator,
pad differently, or overflow. So each of its outputs is compared before its time is trusted. The
right answers are those of the file, run by ONNX Runtime without any optimization, or those of the
module, run by torch in fp32. The inputs are those of the measurement, and further batches. If an
engine answers a file wrongly, the first operator that it computes differently is named.
"""

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
from labkit.engines._right_answers import answers_as_written, is_file, outputs_without_numbers
from labkit.engines._varied_batches import (
    dark_batch,
    further_batches,
    made_up_batches,
    second_batch,
)
from labkit.errors import LabError
from labkit.export.variation import ROUNDING, decibels
from labkit.files import sha256

# the verdicts of this process: {(content of the file, engine, content of the inputs): verdict}
_verdicts: dict[tuple, "Verdict"] = {}


@dataclass(frozen=True)
class Verdict:
    """The result of comparing an engine's answers with the right answers.

    db         the lowest SQNR of all outputs, in dB; None if nothing was compared
    reason     a text that says why the engine must not be timed; None if it may be timed
    unchecked  a text that says which outputs could not be compared, and why; None if all were
               compared
    """

    db: float | None = None
    reason: str | None = None
    unchecked: str | None = None


def disagreement(
    served: Any, network: Any, inputs: tuple, load: Callable, user_batches: Iterable[tuple] = ()
) -> Verdict:
    """Compare an engine's answers with those of an ONNX file or torch module. Returns a `Verdict`.

    The `reason` of the `Verdict` is None if the engine answers rightly. Otherwise it names the
    output that differs; for a file, also the first operator that differs. Or it says that no output
    varies with the inputs.

    The verdict on a file is remembered in this process, for the same engine, precision, device and
    content of `inputs` and `user_batches`.

    served        the `Served` that `engines.load` made of the network
    network       the path of an ONNX file, or a torch module
    inputs        a batch: one tensor for each input of the network
    load          function (path of another ONNX file, example) -> the `Served` of that file in the
                  same engine
    user_batches  further batches of the user's data
    """
    if not isinstance(network, (str, Path)):
        return _compare(served, network, inputs, load, user_batches)
    user_batches = list(user_batches)
    content = tuple(
        (tuple(tensor.shape), zlib.crc32(tensor.cpu().contiguous().numpy()))
        for batch in (inputs, *user_batches)
        for tensor in batch
    )
    key = (sha256(Path(network)), served.engine, served.precision, served.device, content)
    if key not in _verdicts:
        _verdicts[key] = _compare(served, network, inputs, load, user_batches)
    return _verdicts[key]


def _compare(served, network, inputs, load, user_batches=()):
    """Compare as `disagreement` does, without a look at remembered verdicts. Returns a `Verdict`.

    served, network, inputs, load, user_batches  as in `disagreement`
    """
    # The right answers, with as many batches as each output takes to vary.
    in_small_numbers = is_file(network) and served.precision != "fp32"
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
        right_answers = [(batch, answers_as_written(network, batch)) for batch in batches]
        constant = _constant_outputs(right_answers)
        for batch in chain(user_batches, further_batches(inputs)):
            if not constant:
                break
            further = (batch, answers_as_written(network, batch))
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
        return Verdict(reason=_reason_for_constant(names, constant, of_user=bool(user_batches)))

    # Each output of the engine: on each batch, or in small numbers on all of them together, as
    # `labkit quantize` compares.
    compared = []
    missing = set()
    for batch, right in right_answers:
        engine_answers = _answers(served, batch, right, of_module=not is_file(network))
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
                reason = _reason_for_difference(db, limit, name, network)
                if in_small_numbers and not user_batches:
                    reason = f"{reason}, on made-up examples (--data: on your own)"
                if is_file(network):
                    operator = first_difference(network, batch, load, name, agrees=agree)
                    reason = f"{reason}. {operator}"
                return Verdict(db, reason)
            least = min(least, db)
    unchecked = []
    if constant:
        unchecked.append(_reason_for_constant(names, constant, of_user=bool(user_batches)))
    if missing:
        unchecked.append(f"{served.engine} does not give {_listed(names, missing)}")
    no_tensors = outputs_without_numbers(network) if is_file(network) else []
    if no_tensors:
        unchecked.append(f"{_listed(no_tensors, no_tensors)}, which is no tensor")
    return Verdict(float(least), unchecked="; ".join(unchecked) or None)


def _together(pairs, served):
    """Join the batches of one output, so that all their answers are compared as one.

    Returns a list with a single (batch, right answer, engine's answer). Its batch is the one with
    the lowest SQNR. If the shapes do not fit together, `pairs` is returned unchanged.

    pairs   [(batch, right answer, engine's answer)]
    served  the `Served` of the engine
    """
    shapes = {(right.shape[1:], answer.shape[1:]) for _, right, answer in pairs}
    if len(shapes) != 1 or not all(right.ndim and answer.ndim for _, right, answer in pairs):
        return pairs
    import torch

    worst = min(pairs, key=lambda pair: agreement(*pair[1:], served)[0])
    right = torch.cat([right.cpu() for _, right, _ in pairs])
    return [(worst[0], right, torch.cat([answer.cpu() for *_, answer in pairs]))]


def _listed(names, chosen):
    """Return the chosen names as a text, in the order of `names`, such as "the output 'logits'"."""
    quoted = [repr(name) for name in names if name in chosen]
    return f"the output{'s' if len(quoted) > 1 else ''} {', '.join(quoted)}"


def _reason_for_constant(names, constant, *, of_user):
    """Return a text about outputs that do not vary with the inputs, and what the user can do.

    names     the names of all outputs
    constant  the names of the outputs that do not vary
    of_user   True if the inputs are the user's data, False if they are random
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


def _reason_for_difference(db, limit, name, network):
    """Return a sentence about an output whose SQNR `db` is below its limit."""
    meant = "the file means" if is_file(network) else "the torch module"
    return (
        f"It answers something else than {meant}: {decibels(db)} in the output {name!r}, expected "
        f"{limit:g} dB"
    )


def _constant_outputs(right_answers):
    """Return the names of the outputs that have the same numbers, up to rounding, in all batches.

    right_answers  [(batch, {name of an output: tensor})]. If there is a single batch, its first
                   half is compared with its second half. If that batch has one item only, all
                   outputs count as constant
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
    """Return True if two answers have the same shape and the same numbers, up to rounding.

    Integers must be equal.
    """
    if answer.shape != other.shape:
        return False
    if not answer.is_floating_point():
        return bool((answer == other).all())
    return bool(
        answer.double().isclose(other.double(), rtol=ROUNDING, atol=0, equal_nan=True).all()
    )


def _answers(served, batch, right, *, of_module):
    """Return an engine's answers to a batch: {name of an output: tensor}.

    The first output is that of a plain call of the `Served`, in float32. If the engine gives no
    further outputs, it is the only one.

    right      {name of an output: tensor} of the right answers, in order
    of_module  True if the network is a torch module. Then the engine does not know the names, and
               the outputs are matched by their order. If their number differs from `right`, only
               the first is returned
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
