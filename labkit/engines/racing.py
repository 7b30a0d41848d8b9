"""Find out which of several networks, files or engines is fastest, by timing them in turn."""

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
    """Time several networks or files in turn, each in an engine, for each batch size.

    Each one is compared with the first, and all run on inputs of the first. The first is loaded
    twice. The ratio of its two sessions shows the noise: how far from 1 a ratio is between equals.

    contenders  [(`Opened`, name of an engine that can run it)]
    batches     batch sizes
    precision   one of `engines.PRECISIONS`; None: the precision of each network
    threads     CPU threads; None: as many as torch uses
    plan        the `measure.clock.Plan` of the timing; None: the default
    returns     an iterator of `measure.Comparison`, one for each batch size; its rows are in the
                ledger
    Raises      MeasureError: an engine answers wrongly, or two contenders answer too differently to
                be the same network
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
    """Return a short name for each network: {id(network): name}. All names differ.

    The name is the file's name without its ending. If two files have the same, it is the whole
    path.

    networks  a list of `Opened`
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
    """A network in an engine, ready to run on one batch. Its answers have been compared before.

    name       the network and the engine, for messages
    served     the `Served` that `engines.load` returned
    inputs     the batch, on the engine's device already, so that moving it is not timed
    unchecked  which outputs could not be compared, as in `Verdict`
    """

    name: str
    served: Any
    inputs: tuple
    unchecked: str | None

    def __call__(self):
        return self.served(*self.inputs)


def _session(network, engine, batch, user_batches, *, precision, threads):
    """Load a network into an engine and check its answers. Returns a `_Session`.

    Raises MeasureError if the answers are wrong.

    network              an `Opened`
    engine               name of the engine
    batch, user_batches  a batch, and further batches of the user's data
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
    """Return a text if a file's answers are no nearer to the first network's than a constant is.

    Otherwise return None. Such answers could pass the comparison of a race: its tolerance is a
    share of the largest value, which may be more than what varies in the answers. So here what
    varies is compared, by the SQNR of `labkit.export.variation`, on enough items to have a mean.

    first, session  the `_Session` of the first network, and that of the file
    size            batch size
    user_batches    further batches of the user's data for the first network; may be empty
    Raises          MeasureError instead of the text, if the inputs are the user's own data
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
    """Return True if both answers have an output of this name, with the same shape.

    right, answer  {name of an output: tensor}
    """
    return name in right and name in answer and right[name].shape == answer[name].shape


def _joined_batches(tensors):
    """Return the answers to several batches as one array of doubles."""
    return np.concatenate([np.atleast_1d(tensor.cpu().double().numpy()) for tensor in tensors])


def _joined(*texts):
    """Join texts by semicolons, each text once. None is left out; without any text, return None."""
    return "; ".join(dict.fromkeys(filter(None, texts))) or None
