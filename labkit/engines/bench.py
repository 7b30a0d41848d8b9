"""Measure a network from the command line: the same harness and the same rows as in the lessons."""

import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from labkit import device as devices
from labkit import engines, export, ledger, measure, models
from labkit.engines import fidelity
from labkit.engines._disagreement import Verdict, disagreement
from labkit.engines._varied_batches import NORMAL_BATCHES, further_batches
from labkit.engines.cache import refuse_compiled_file
from labkit.engines.misfit import recipe_of
from labkit.errors import LabError, MeasureError, Unavailable
from labkit.ledger.rows import Latency, Run
from labkit.measure.variation import MIN_ITEMS, decibels
from labkit.quantize import comparison_images

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


@dataclass(frozen=True)
class Opened:
    """A network by name, or an ONNX file, ready for engines.

    model         what `engines.load` takes
    precision     that it holds
    inputs        batch size -> a tuple of inputs on the device
    user_batches  batch size -> further such tuples, of the user's data; none where inputs are
                  random
    graph         the ModelProto of a file
    examples      which data of the user the inputs are, in words; None: they are random
    """

    name: str
    model: Any
    precision: str
    inputs: Callable
    user_batches: Callable = lambda batch: []
    graph: Any = None
    examples: str | None = None

    def inputs_in_words(self) -> str:
        """Return a sentence on what a file is timed on, and on what its answers are compared."""
        if self.examples is None:
            return (
                "Timed on random numbers. In small numbers, whether answers are as the file means "
                "is judged on 8 made-up examples, as `labkit quantize` does without --data."
            )
        return (
            f"Timed on {self.examples}. Whether answers are as the file means is judged on the "
            f"first {NORMAL_BATCHES + 1} batches of them."
        )


def opened(name: str, data: str | None = None, **pictures: Any) -> Opened:
    """Return the `Opened` of a network of the course, or of the path of an ONNX file.

    data      a data set, a folder of pictures or a file .npz, whose test examples are the inputs;
              None: random numbers
    pictures  size, mean and std, as for `quantize.images_for`
    """
    refuse_compiled_file(name)
    device = devices.pick()
    if Path(name).suffix == ".onnx":
        graph = export.checked(name)
        make_inputs: Callable = partial(export.random_inputs, graph)
        further = range(0)
        description = None
        if data is not None:
            images = comparison_images(name, data, **pictures)
            description = images.description
            make_inputs = partial(_examples, _arrays(list(images.batches)))
            further = range(1, NORMAL_BATCHES + 1)
        return Opened(
            name=Path(name).name,
            model=name,
            precision=export.precision_of(graph),
            inputs=lambda batch: _on(device, make_inputs(batch)),
            user_batches=lambda batch: [
                _on(device, make_inputs(batch, number)) for number in further
            ],
            graph=graph,
            examples=description,
        )
    if data is not None:
        raise LabError(
            "A network by its name is measured on random numbers.",
            expected="--data with ONNX files only",
            found=name,
            fix=f"labkit export {name}",
        )
    torch.manual_seed(0)
    network, _ = models.build(name)
    return Opened(
        name, network, "fp32", inputs=lambda batch: _on(device, [models.example(name, batch)])
    )


def _arrays(batches):
    """Return batches of examples as one array for each input.

    batches  arrays (n, C, H, W), or for a network of several inputs {its name: array}
    """
    if not isinstance(batches[0], dict):
        batches = [{"input": images} for images in batches]
    return [np.concatenate([arrays[name] for arrays in batches]) for name in batches[0]]


def _examples(arrays, batch, number=0):
    """Return examples as one batch, a tensor for each input; where there are too few, they are
    repeated.

    arrays  as of `_arrays`
    number  of the batch: 0 has the first examples, 1 those that follow
    """
    tensors = []
    for examples in arrays:
        numbers = (number * batch + np.arange(batch)) % len(examples)
        tensors.append(torch.from_numpy(examples[numbers]))
    return tuple(tensors)


def bench(
    network: Any,
    batches: Iterable[int],
    *,
    engine: str = "eager",
    precision: str | None = None,
    threads: int | None = None,
    plan: "Plan | None" = None,
    among_others: bool = False,
) -> Iterator[Latency]:
    """Return an iterator of a `rows.Latency` for each batch size, each yielded when it is measured
    and in the ledger.

    network       what `opened` returned
    precision     one of `engines.PRECISIONS`; None: the one it holds
    threads       CPU threads; None: as many as torch uses
    among_others  further engines are measured: one for another kind of model is a row, not an error

    What cannot run here is a row with the reason and no number. What does not exist is refused at
    once.
    """
    # An engine of torch modules is refused a file, unless it is one of several.
    runs = engines.get(engine).RUNS
    if network.graph is not None and runs == "torch" and not among_others:
        raise LabError(
            f"{engine} runs torch modules, not ONNX files.",
            expected="a torch module",
            found=network.name,
            fix=f"choose the engine {' or '.join(engines.names(runs='onnx'))}",
        )
    precision = precision or network.precision
    run_key = _new_run()

    def measured(batch):
        inputs = network.inputs(batch)
        try:
            row = _measure_one(
                engine,
                network.model,
                inputs,
                precision=precision,
                threads=threads,
                plan=plan,
                user_batches=network.user_batches(batch),
            )
        except LabError as error:
            if not among_others:
                raise
            row = _missing(error, inputs, threads)
        row = replace(row, run_key=run_key, name=f"{network.name} {engine} {precision}")
        ledger.add(row)
        return row

    return map(measured, batches)


def race(
    contenders: Any,
    batches: Iterable[int],
    *,
    precision: str | None = None,
    threads: int | None = None,
    plan: "Plan | None" = None,
) -> "Iterator[Comparison]":
    """Return an iterator of a `measure.Comparison` for each batch size; the rows of each are in the
    ledger.

    contenders  [(network, engine that can run it)]; all are compared with the first of them, on
                inputs for that one

    Engines and files are timed in turn. A second session of the first is the null arm. The other
    arguments are those of `bench`.
    """
    first, first_engine = contenders[0]
    run_key = _new_run()
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
    """Return {id(network): its short name}, all different: a file's name without ending, else
    its whole path.
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
    """A network in an engine, ready to run on one batch; its answers are right.

    served     what `engines.load` returned
    inputs     the batch on the device of the engine: carrying it there is not timed
    unchecked  as in `Verdict`
    """

    name: str
    served: Any
    inputs: tuple
    unchecked: str | None

    def __call__(self):
        return self.served(*self.inputs)


def _session(network, engine, batch, user_batches, *, precision, threads):
    """Return the `_Session` of a network in an engine; MeasureError where the answers are
    wrong.
    """
    served = engines.load(
        engine, network.model, batch[0], precision=precision or network.precision, threads=threads
    )
    verdict = _compared(served, network.model, batch, user_batches)
    if verdict.reason:
        raise MeasureError(f"{network.name} in {engine} is not timed.", found=verdict.reason)
    return _Session(
        f"{network.name} in {engine}", served, _on(served.device, batch), verdict.unchecked
    )


def _not_alike(first, session, size, user_batches):
    """Return why the answers of a file say nothing about those of the first one, or None.

    A tolerance of the largest value may be larger than what varies. So what varies is compared, on
    items enough to have a mean.

    first, session  the `_Session` of the first network and of this one
    size            of a batch
    user_batches    as of the first network, an `Opened`
    Raises          MeasureError where that is so on the user's own data
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
        answers = [[answer[name] for answer in pair if name in answer] for pair in pairs]
        if any(len(pair) < 2 or pair[0].shape != pair[1].shape for pair in answers):
            continue
        right, answer = (
            np.concatenate([np.atleast_1d(pair[arm].cpu().double().numpy()) for pair in answers])
            for arm in (0, 1)
        )
        db = fidelity.between(right, answer).db
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


def _joined(*texts):
    """Return the texts that are not None, each once, as one; None where there is none."""
    return "; ".join(dict.fromkeys(filter(None, texts))) or None


def _new_run():
    """Write this machine and a new run to the ledger. Returns the key of the run."""
    machine = devices.describe()
    run = Run(
        run_key=f"bench-{uuid.uuid4().hex[:12]}",
        notebook="labkit bench",
        profile="lab",
        seed=0,
        started_utc=ledger.now(),
        machine_key=machine.machine_key,
        commit=devices.commit(),
    )
    ledger.add(machine, run)
    return run.run_key


def _on(device, tensors):
    return tuple(tensor.to(device) for tensor in tensors)


def _measure_one(engine, network, inputs, *, precision, threads, plan, user_batches=()):
    """Return the latency of one batch size where the engine really runs, or a row with the reason.

    Its answers are compared with what the file or the torch module means: an engine that answers
    something else gets no number.
    """
    # Load it, and compare its answers. A module's first call may compile, which the row tells: it
    # is compared afterwards.
    start = time.perf_counter()
    of_module = not isinstance(network, (str, Path))
    compare = partial(_compared, network=network, inputs=inputs, user_batches=user_batches)
    try:
        served = engines.load(engine, network, inputs[0], precision=precision, threads=threads)
        load_ms = 1e3 * (time.perf_counter() - start)
        verdict = Verdict() if of_module else compare(served)
    except Unavailable as error:
        return _missing(error, inputs, threads)
    refused = partial(Latency, **_row_fields(inputs, threads))
    if verdict.reason:
        return refused(sqnr_db=verdict.db, reason=verdict.reason)

    # Time it on its own device; carrying the inputs to it is not timed.
    served_inputs = _on(served.device, inputs)
    row = measure.latency(
        served, inputs=[served_inputs], device=served.device, batch=len(inputs[0]), plan=plan
    )
    if of_module:
        verdict = compare(served)
        if verdict.reason:
            return refused(reason=verdict.reason)
    # the row says it of files in small numbers
    sqnr_db = None if of_module or precision == "fp32" else verdict.db
    return replace(
        row,
        threads=served.threads,
        load_ms=load_ms,
        sqnr_db=sqnr_db,
        unchecked=verdict.unchecked,
    )


def _row_fields(inputs, threads):
    return {"device": str(inputs[0].device), "threads": threads, "batch": len(inputs[0])}


def _missing(error, inputs, threads):
    """Return the row of what an error kept from being measured."""
    return Latency(**_row_fields(inputs, threads), reason=fidelity.reason_of(error))


def _compared(served, network, inputs, user_batches=()):
    """Return the `Verdict` of an engine's answers to what a file or a torch module means.

    Raises Unavailable where the engine loads the network and then fails on a batch.
    """

    def load(path, example):
        precision = served.precision  # of a file in fp32, it may be bf16
        if export.precision_of(export.checked(network)) == precision:
            precision = export.precision_of(export.checked(path))
        return engines.load(
            served.engine, path, example, precision=precision, threads=served.threads
        )

    try:
        verdict = disagreement(served, network, inputs, load, user_batches)
    except LabError as error:
        raise Unavailable(
            error.what, expected=error.expected, found=error.found, fix=error.fix
        ) from error
    if verdict.reason and verdict.db is not None and served.precision == "int8":
        made_for = recipe_of(export.checked(network))
        if made_for == served.engine:
            advice = "The file is of its own recipe: take another engine"
        else:
            advice = f"Try the recipe for {served.engine}"
        verdict = replace(verdict, reason=f"{verdict.reason}. {advice}")
    return verdict
