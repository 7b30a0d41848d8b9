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
from labkit.engines._disagreement import disagreement
from labkit.engines.cache import refuse_compiled_file
from labkit.errors import LabError, MeasureError, Unavailable
from labkit.ledger.rows import Latency, Run
from labkit.quantize import comparison_images

if TYPE_CHECKING:
    from labkit.measure.clock import Plan
    from labkit.measure.compare import Comparison

# engines round in their own ways, INT8 most of all; another batch or a missing softmax is further
# away
ROUNDING = 0.1
# where files race: INT8 answers roughly, random inputs most; `labkit quantize` says how roughly
ANOTHER_FILE = 0.5
NO_RACE_FIX = (
    "are these files of one network? Where one is in INT8, compare them on real pictures: --data, "
    "with the --mean and "
    "--std of `labkit quantize`"
)


@dataclass(frozen=True)
class Opened:
    """A network by name, or an ONNX file, ready for engines.

    model      what `engines.load` takes
    precision  that it holds
    inputs     batch size -> a tuple of inputs on the device
    graph      the ModelProto of a file
    """

    name: str
    model: Any
    precision: str
    inputs: Callable
    graph: Any = None


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
        make_inputs = partial(export.random_inputs, graph)
        if data is not None:
            make_inputs = partial(
                _examples, list(comparison_images(name, data, **pictures).batches)
            )
        return Opened(
            name=Path(name).name,
            model=name,
            precision=export.precision_of(graph),
            inputs=lambda batch: _on(device, make_inputs(batch)),
            graph=graph,
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


def _examples(batches, batch):
    """Return the first examples as one batch, a tensor for each input; where there are too few,
    they are repeated.

    batches  arrays (n, C, H, W), or for a network of several inputs {its name: array}
    """
    if not isinstance(batches[0], dict):
        batches = [{"input": images} for images in batches]
    tensors = []
    for name in batches[0]:
        examples = np.concatenate([arrays[name] for arrays in batches])
        numbers = np.arange(batch) % len(examples)
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
                engine, network.model, inputs, precision=precision, threads=threads, plan=plan
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
        arms = {}
        for network, engine in contenders:
            name = engine if len(labels) == 1 else f"{labels[id(network)]} {engine}"
            arms[name] = session(network, engine, batch)
        second_session = session(first, first_engine, batch)

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
            error.fix = NO_RACE_FIX
            raise
        names = labels.values() if len(labels) > 1 else [first.name]
        name = f"{', '.join(names)} batch {size}"
        ledger.add(*(replace(row, run_key=run_key, name=name) for row in comparison.rows))
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


def _session(network, engine, batch, *, precision, threads):
    """Return a function that runs a network in an engine on a batch; MeasureError where the
    answers are wrong.
    """
    served = engines.load(
        engine, network.model, batch[0], precision=precision or network.precision, threads=threads
    )
    _, difference = _compared(served, network.model, batch)
    if difference:
        raise MeasureError(f"{network.name} in {engine} is not timed.", found=difference)
    inputs = _on(served.device, batch)  # carrying them to the device is not timed
    return lambda: served(*inputs)


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


def _measure_one(engine, network, inputs, *, precision, threads, plan):
    """Return the latency of one batch size where the engine really runs, or a row with the reason.

    Before a file is timed, its answers are compared with what the file means: an engine that
    answers something else gets no number.
    """
    # Load it, and compare its answers.
    start = time.perf_counter()
    try:
        served = engines.load(engine, network, inputs[0], precision=precision, threads=threads)
        load_ms = 1e3 * (time.perf_counter() - start)
        sqnr_db, difference = _compared(served, network, inputs)
    except Unavailable as error:
        return _missing(error, inputs, threads)
    if difference:
        return Latency(**_row_fields(inputs, threads), sqnr_db=sqnr_db, reason=difference)

    # Time it on its own device; carrying the inputs to it is not timed.
    served_inputs = _on(served.device, inputs)
    row = measure.latency(
        served, inputs=[served_inputs], device=served.device, batch=len(inputs[0]), plan=plan
    )
    if precision == "fp32":
        sqnr_db = None  # the row says it of files in small numbers
    return replace(row, threads=served.threads, load_ms=load_ms, sqnr_db=sqnr_db)


def _row_fields(inputs, threads):
    return {"device": str(inputs[0].device), "threads": threads, "batch": len(inputs[0])}


def _missing(error, inputs, threads):
    """Return the row of what an error kept from being measured."""
    reason = f"{error.what.rstrip('.')} ({error.found})" if error.found else error.what
    return Latency(**_row_fields(inputs, threads), reason=reason)


def _compared(served, network, inputs):
    """Return (SQNR in dB, reason why it is too low or None) of an engine's answers to what a file
    means.

    Both are None for a torch module, and where the file cannot be run as it is written.

    Raises Unavailable where the engine loads the file and then fails on a batch.
    """
    if not isinstance(network, (str, Path)):
        return None, None

    # such as fp32 in bf16
    computed_otherwise = export.precision_of(export.checked(network)) != served.precision

    def load(path, example):
        precision = served.precision
        if not computed_otherwise:
            precision = export.precision_of(export.checked(path))
        return engines.load(
            served.engine, path, example, precision=precision, threads=served.threads
        )

    try:
        db, difference = disagreement(served, network, inputs, load)
    except LabError as error:
        raise Unavailable(
            error.what, expected=error.expected, found=error.found, fix=error.fix
        ) from error
    if difference and served.precision == "int8":
        difference = f"{difference}. Try the recipe for {served.engine}"
    return db, difference
