"""Measure a network from the command line: the same harness and the same rows as in the lessons."""

import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from labkit import device as devices
from labkit import engines, export, ledger, measure, models
from labkit.engines import fidelity
from labkit.errors import MeasureError, Unavailable
from labkit.ledger.rows import Latency, Run

if TYPE_CHECKING:
    from labkit.measure.clock import Plan
    from labkit.measure.compare import Comparison

ROUNDING = 0.1  # engines round in their own ways, INT8 most of all; another batch or a missing softmax is further away
ANOTHER_FILE = 0.5  # where files race: INT8 answers random inputs roughly; `labkit quantize` says what pictures lose


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


def opened(name: str) -> Opened:
    """The `Opened` of a name."""
    device = devices.pick()
    if Path(name).suffix == ".onnx":
        graph = export.checked(name)
        precision = export.precision_of(graph)
        return Opened(Path(name).name, name, precision, lambda n: _on(device, export.random_inputs(graph, n)), graph)
    torch.manual_seed(0)
    network, _ = models.build(name)
    return Opened(name, network, "fp32", lambda batch: _on(device, [models.example(name, batch)]))


def bench(
    network: Any,
    batches: Iterable[int],
    *,
    engine: str = "eager",
    precision: str | None = None,
    threads: int | None = None,
    plan: "Plan | None" = None,
) -> Iterator[Latency]:
    """An iterator of a `rows.Latency` for each batch size, each yielded as soon as it is measured and in the ledger.

    network    what `opened` returned
    precision  one of `engines.PRECISIONS`; None: the one it holds
    threads    CPU threads; None: as many as torch uses
    What cannot run here is a row with the reason and no number. What does not exist is refused at once.
    """
    engines.get(engine)
    precision, run_key = precision or network.precision, _new_run()

    def measured(batch):
        inputs = network.inputs(batch)
        row = _measure_one(engine, network.model, inputs, precision=precision, threads=threads, plan=plan)
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
    """An iterator of a `measure.Comparison` for each batch size: engines and files in turn, their rows in the ledger.

    contenders  [(network, engine that can run it)]; all are held against the first of them, on inputs for that one
    A second session of the first is the null arm. The rest is as for `bench`.
    """
    (first, _), run_key = contenders[0], _new_run()
    names = list(dict.fromkeys(network.name for network, _ in contenders))
    tolerance = ROUNDING if len(names) == 1 else ANOTHER_FILE

    def session(network, engine, batch):
        held = precision or network.precision
        served = engines.load(engine, network.model, batch[0], precision=held, threads=threads)
        there = _on(served.device, batch)  # carrying them there is not timed
        return lambda: served(*there)

    def compared(size):
        batch, arms = first.inputs(size), {}
        for network, engine in contenders:
            name = engine if len(names) == 1 else f"{Path(network.name).stem} {engine}"
            arms[name] = session(network, engine, batch)
        baseline = next(iter(arms))
        arms[baseline] = arms[baseline], session(*contenders[0], batch)
        try:
            found = measure.compare(arms, tolerance=tolerance, device=batch[0].device, batch=size, plan=plan)
        except MeasureError as error:
            error.fix = (
                "time the files one at a time; `labkit quantize` says what INT8 keeps of the answers to pictures"
            )
            raise
        name = f"{', '.join(names)} batch {size}"
        ledger.add(*(replace(row, run_key=run_key, name=name) for row in found.rows))
        return found

    return map(compared, batches)


def _new_run():
    """The key of a run of its own, which is in the ledger with this machine."""
    machine = devices.describe()
    run = Run(run_key=f"bench-{uuid.uuid4().hex[:12]}", notebook="labkit bench", profile="lab", seed=0,
              started_utc=ledger.now(), machine_key=machine.machine_key, commit=devices.commit())  # fmt: skip
    ledger.add(machine, run)
    return run.run_key


def _on(device, tensors):
    return tuple(tensor.to(device) for tensor in tensors)


def _measure_one(engine, network, inputs, *, precision, threads, plan):
    """The latency of one batch size where the engine really runs, or a row with the reason.

    An INT8 file is answered once before it is timed: an engine that answers something else gets no number.
    """
    batch = len(inputs[0])
    missing = Latency(device=str(inputs[0].device), threads=threads, batch=batch)
    begin = time.perf_counter()
    try:
        served = engines.load(engine, network, inputs[0], precision=precision, threads=threads)
    except Unavailable as error:
        reason = f"{error.what.rstrip('.')} ({error.found})" if error.found else error.what
        return replace(missing, reason=reason)
    load_ms = 1e3 * (time.perf_counter() - begin)
    alike = fidelity.of_engine(served, network, inputs) if precision == "int8" else None
    if alike and alike.db < fidelity.ENGINE_DB:
        reason = f"It answers something else than the file means: {alike}, expected {fidelity.ENGINE_DB:g} dB"
        return replace(missing, sqnr_db=alike.db, reason=f"{reason}. Try the recipe for {engine}")
    there = _on(served.device, inputs)  # carrying them there is not timed
    row = measure.latency(served, inputs=[there], device=served.device, batch=batch, plan=plan)
    return replace(row, threads=served.threads, load_ms=load_ms, sqnr_db=alike and alike.db)
