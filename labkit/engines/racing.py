"""Time networks, files and engines in turn: which of them answers faster?"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from labkit import engines, ledger, measure
from labkit.engines import fidelity
from labkit.engines._varied_batches import further_batches
from labkit.engines.bench import new_run, verdict_of
from labkit.engines.opening import Opened, on_device
from labkit.errors import MeasureError
from labkit.export.variation import MIN_ITEMS, decibels

if TYPE_CHECKING:
    from labkit.measure.clock import Plan
    from labkit.measure.compare import Comparison

# engines round in their own ways, INT8 most of all; another batch or a missing softmax is further
# away
ROUNDING = 0.1
# where files race: INT8 answers roughly, random inputs most; `labkit quantize` says how roughly
ANOTHER_FILE = 0.5
SAME_NETWORK = "are these files of one network?"
ON_RANDOM_INPUTS = (
    f"{SAME_NETWORK} Where one is in INT8, compare them on real pictures: --data, with the --mean "
    "and --std of `labkit quantize`"
)
ON_THESE_INPUTS = (
    f"{SAME_NETWORK} If they are, one has lost its answers: `labkit quantize` with --keep auto, or "
    "in another --precision, keeps more of them"
)
# where files race: below this SQNR of what varies, answers that are always the same are as near
AS_A_CONSTANT_DB = 0.0


def race(
    contenders: Sequence[tuple[Opened, str]],
    batches: Iterable[int],
    *,
    precision: str | None = None,
    threads: int | None = None,
    plan: "Plan | None" = None,
) -> "Iterator[Comparison]":
    """Time contenders in turn, for each batch size: networks or files, each in an engine.

    Returns an iterator of `measure.Comparison`; the rows of each are in the ledger. A second
    session of the first contender is the null arm.

    contenders  [(`Opened`, name of an engine that can run it)]; each is compared with the first
                contender, on inputs of the first
    The other arguments are those of `bench`.
    """
    first, first_engine = contenders[0]
    run_key = new_run()
    labels = _labels([network for network, _ in contenders])
    tolerance = ROUNDING if len(labels) == 1 else ANOTHER_FILE

    session = partial(_session, precision=precision, threads=threads)

    def compared(size):
        # Open a session for each contender, and a second one for the first.
        batch = first.inputs(size)
        user_batches = first.user_batches(size)
        arms = {}
        unchecked = {}
        for network, engine in contenders:
            name = engine if len(labels) == 1 else f"{labels[id(network)]} {engine}"
            arms[name] = session(network, engine, batch, user_batches)
            texts = [arms[name].unchecked]
            if network is not first:
                first_session = next(iter(arms.values()))
                texts.append(_not_alike(first_session, arms[name], size, user_batches))
            unchecked[name] = _joined(*(text and f"{name}: {text}" for text in texts))
        second_session = session(first, first_engine, batch, user_batches)
        of_first = unchecked[next(iter(arms))]

        # Time them in turn, and store the rows.
        try:
            comparison = measure.compare(
                arms,
                second_session=second_session,
                tolerance=tolerance,
                device=batch[0].device,
                batch=size,
                plan=plan,
            )
        except MeasureError as error:
            error.fix = ON_THESE_INPUTS if user_batches else ON_RANDOM_INPUTS
            raise
        names = labels.values() if len(labels) > 1 else [first.name]
        name = f"{', '.join(names)} batch {size}"

        def named(row):
            text = _joined(of_first, unchecked.get(row.arm, of_first))
            return replace(row, name=name, unchecked=text)

        comparison = replace(
            comparison,
            ratios={arm: named(row) for arm, row in comparison.ratios.items()},
            null=named(comparison.null),
        )
        ledger.add(*(replace(row, run_key=run_key) for row in comparison.rows))
        return comparison

    return map(compared, batches)


def _labels(networks):
    """Return a short name for each network: {id(network): name}, all names different.

    The name is that of the file without its ending; where two files share it, the whole path.
    """
    by_id = {id(network): network for network in networks}
    stems = [Path(network.name).stem for network in by_id.values()]
    labels = {}
    for key, stem in zip(by_id, stems, strict=True):
        if stems.count(stem) == 1:
            labels[key] = stem
        else:
            network = by_id[key]
            labels[key] = str(network.model) if network.graph is not None else network.name
    return labels


@dataclass(frozen=True)
class _Session:
    """A network in an engine, ready to run on one batch; its answers have been compared.

    name       the network and the engine, for messages
    served     the `Served` that `engines.load` returned
    inputs     the batch on the device of the engine: carrying it there is not timed
    unchecked  which outputs could not be compared, as in `Verdict`
    """

    name: str
    served: Any
    inputs: tuple
    unchecked: str | None

    def __call__(self):
        return self.served(*self.inputs)


def _session(network, engine, batch, user_batches, *, precision, threads):
    """Load a network into an engine and compare its answers. Returns a `_Session`.

    Raises MeasureError where the answers are wrong.
    """
    served = engines.load(
        engine, network.model, batch[0], precision=precision or network.precision, threads=threads
    )
    verdict = verdict_of(served, network.model, batch, user_batches)
    if verdict.reason:
        raise MeasureError(f"{network.name} in {engine} is not timed.", found=verdict.reason)
    return _Session(
        f"{network.name} in {engine}", served, on_device(served.device, batch), verdict.unchecked
    )


def _not_alike(first, session, size, user_batches):
    """Return a text if a constant would be as near to the first network's answers as a file is.

    Returns None where the file is nearer. The tolerance of the race is a share of the largest
    value, and may be larger than what varies in the answers. So what varies is compared here, on
    enough items to have a mean.

    first, session  the `_Session` of the first network, and that of the file
    size            batch size
    user_batches    further batches of the user's data for the first network; they may be none
    Raises          MeasureError in place of the text where the inputs are the user's own data
    """
    if first.served.run_whole is None or session.served.run_whole is None:
        return None

    # The answers of both to several batches.
    count = -(-MIN_ITEMS // size)
    batches = [first.inputs, *list(user_batches or further_batches(first.inputs))[: count - 1]]
    pairs = [
        (first.served.all_outputs(*batch), session.served.all_outputs(*batch)) for batch in batches
    ]

    # Outputs that both have, in the same shape.
    lost = []
    for name in pairs[0][0]:
        if not all(_is_comparable(name, right, answer) for right, answer in pairs):
            continue
        right_answers = _joined_batches([right[name] for right, _ in pairs])
        answers = _joined_batches([answer[name] for _, answer in pairs])
        db = fidelity.between(right_answers, answers).db
        if db < AS_A_CONSTANT_DB:
            lost.append(f"{name!r} ({decibels(db)} of what varies)")
    if not lost:
        return None
    text = (
        f"in the output{'s' if len(lost) > 1 else ''} {', '.join(lost)} an answer that is always "
        f"the same would be as near to that of {first.name}"
    )
    if user_batches:
        raise MeasureError(f"{session.name} is not timed.", found=text)
    return f"{text}. Race them on inputs that are not random: --data"


def _is_comparable(name, right, answer):
    """Return True where both answers have an output of this name, in the same shape.

    right, answer  {name of an output: tensor}
    """
    return name in right and name in answer and right[name].shape == answer[name].shape


def _joined_batches(tensors):
    """Return the answers to several batches as one array of doubles."""
    return np.concatenate([np.atleast_1d(tensor.cpu().double().numpy()) for tensor in tensors])


def _joined(*texts):
    """Join the texts that are not None, each once, with semicolons; return None for no text."""
    return "; ".join(dict.fromkeys(filter(None, texts))) or None
