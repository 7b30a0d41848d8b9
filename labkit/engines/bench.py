"""Measure a network from the command line: the same harness and the same rows as in the lessons."""

import time
import uuid
from dataclasses import replace
from pathlib import Path

from labkit import device as devices
from labkit import engines, export, ledger, measure, models
from labkit.engines import fidelity
from labkit.errors import Unavailable
from labkit.ledger.rows import Latency, Run

ROUNDING = 0.1  # engines round in their own ways, INT8 most of all; another batch or a missing softmax is further away
ANOTHER_FILE = 0.5  # where files race: INT8 answers random inputs roughly; `labkit quantize` says what pictures lose


def bench(model, batches, *, engine="eager", precision=None, threads=None, plan=None):
    """An iterator of a `rows.Latency` for each batch size, each yielded as soon as it is measured and in the ledger.

    model      the name of a network, or the path of an ONNX file
    precision  one of `engines.PRECISIONS`; None: fp32 for a network, what it holds for a file
    threads    CPU threads; None: as many as torch uses
    What cannot run here is a row with the reason and no number. What does not exist is refused at once.
    """
    engines.get(engine)
    network, held, inputs = _opened(model)
    precision, run_key = precision or held, _new_run()

    def measured(batch):
        row = measure_one(engine, network, inputs(batch), precision=precision, threads=threads, plan=plan)
        row = replace(row, run_key=run_key, name=f"{Path(model).name} {engine} {precision}")
        ledger.add(row)
        return row

    return map(measured, batches)


def race(contenders, batches, *, precision=None, threads=None, plan=None):
    """An iterator of a `measure.Comparison` for each batch size: engines and files in turn, their rows in the ledger.

    contenders  [(model, engine that can run it)]; all are held against the first of them, on inputs for that one
    A second session of the first is the null arm. The rest is as for `bench`.
    """
    opened = {model: _opened(model) for model, _ in contenders}
    (first, _), run_key = contenders[0], _new_run()
    inputs = opened[first][2]
    tolerance = ROUNDING if len(opened) == 1 else ANOTHER_FILE

    def session(contender, batch):
        model, engine = contender
        network, held, _ = opened[model]
        served = engines.load(engine, network, batch[0], precision=precision or held, threads=threads)
        there = _on(served.device, batch)  # carrying them there is not timed
        return lambda: served(*there)

    def compared(size):
        batch = inputs(size)
        arms = {_name(*contender, len(opened)): session(contender, batch) for contender in contenders}
        baseline = next(iter(arms))
        arms[baseline] = arms[baseline], session(contenders[0], batch)
        found = measure.compare(arms, tolerance=tolerance, device=batch[0].device, batch=size, plan=plan)
        name = f"{', '.join(Path(model).name for model in opened)} batch {size}"
        ledger.add(*(replace(row, run_key=run_key, name=name) for row in found.rows))
        return found

    return map(compared, batches)


def _name(model, engine, models):
    """What a contender is called in the ratios: with its file where several files race."""
    return engine if models == 1 else f"{Path(model).stem} {engine}"


def _new_run():
    """The key of a run of its own, which is in the ledger with this machine."""
    machine = devices.describe()
    run = Run(run_key=f"bench-{uuid.uuid4().hex[:12]}", notebook="labkit bench", profile="lab", seed=0,
              started_utc=ledger.now(), machine_key=machine.machine_key, commit=devices.commit())  # fmt: skip
    ledger.add(machine, run)
    return run.run_key


def _opened(model):
    """(what `engines.load` takes, the precision it holds, batch size -> a tuple of inputs on the device)."""
    import torch

    device = devices.pick()
    if Path(model).suffix == ".onnx":
        graph = export.checked(model)
        return model, export.precision_of(graph), lambda batch: _on(device, export.random_inputs(graph, batch))
    torch.manual_seed(0)
    network, _ = models.build(model)
    return network, "fp32", lambda batch: _on(device, [models.example(model, batch)])


def _on(device, tensors):
    return tuple(tensor.to(device) for tensor in tensors)


def measure_one(engine, network, inputs, *, precision, threads=None, plan=None):
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
    where = {"inputs": [_on(served.device, inputs)], "device": served.device}  # carrying them there is not timed
    row = measure.latency(served, **where, batch=batch, plan=plan)
    return replace(row, threads=served.threads, load_ms=load_ms, sqnr_db=alike and alike.db)
