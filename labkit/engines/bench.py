"""Measure the latency of a network for the command line, as the lessons measure it."""

import time
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from labkit import device as devices
from labkit import engines, export, ledger, measure
from labkit.engines._disagreement import Verdict, disagreement
from labkit.engines.fidelity import reason_of
from labkit.engines.misfit import recipe_of
from labkit.engines.opening import Opened, on_device
from labkit.errors import LabError, Unavailable
from labkit.ledger.rows import Latency, Run

if TYPE_CHECKING:
    from labkit.measure.clock import Plan


def bench(
    network: Opened,
    batches: Iterable[int],
    *,
    engine: str = "eager",
    precision: str | None = None,
    threads: int | None = None,
    plan: "Plan | None" = None,
    among_others: bool = False,
) -> Iterator[Latency]:
    """Measure the latency of a network in an engine, for each batch size.

    Returns an iterator of `rows.Latency`. Each row is measured, stored in the ledger and then
    yielded. If the engine cannot run the network, or answers wrongly, the row has no number but the
    reason.

    network       the `Opened` that `labkit.engines.opening.opened` returned
    batches       batch sizes
    engine        name of the engine
    precision     one of `engines.PRECISIONS`; None: the precision of the network
    threads       CPU threads; None: as many as torch uses
    plan          the `measure.clock.Plan` of the timing; None: the default
    among_others  True if the caller measures several engines. Then a mismatch between engine and
                  network, such as an ONNX file for an engine of torch modules, gives a row with the
                  reason. False: it raises LabError
    Raises        LabError: there is no such engine
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
    run_key = new_run()

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


def new_run():
    """Add this machine and a new run of `labkit bench` to the ledger. Returns the run's key."""
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


def _measure_one(engine, network, inputs, *, precision, threads, plan, user_batches=()):
    """Return the `Latency` of one batch size; without a number if the network cannot be measured.

    In that case the row has the reason. One reason is a wrong answer: the engine's answers are
    compared with those of the ONNX file as it is written, or of the torch module.

    engine        name of the engine
    network       a torch module, or the path of an ONNX file
    inputs        a batch: one tensor for each input of the network
    user_batches  further batches of the user's data
    """
    # Load it, and compare its answers. A module's first call may compile, which the row tells: it
    # is compared afterwards.
    start = time.perf_counter()
    of_module = not isinstance(network, (str, Path))
    compare = partial(verdict_of, network=network, inputs=inputs, user_batches=user_batches)
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
    served_inputs = on_device(served.device, inputs)
    row = measure.latency(
        served, inputs=[served_inputs], device=served.device, batch=len(inputs[0]), plan=plan
    )
    if of_module:
        verdict = compare(served)
        if verdict.reason:
            return refused(reason=verdict.reason)
    # the row holds the SQNR only of files in small numbers
    sqnr_db = None if of_module or precision == "fp32" else verdict.db
    return replace(
        row,
        threads=served.threads,
        load_ms=load_ms,
        sqnr_db=sqnr_db,
        unchecked=verdict.unchecked,
    )


def _row_fields(inputs, threads):
    """Return the fields of a `Latency` that are known before it is measured, as a dictionary."""
    return {"device": str(inputs[0].device), "threads": threads, "batch": len(inputs[0])}


def _missing(error, inputs, threads):
    """Return a `Latency` without a number, whose reason is the text of an error."""
    return Latency(**_row_fields(inputs, threads), reason=reason_of(error))


def verdict_of(served, network, inputs, user_batches=()):
    """Return the `Verdict` on an engine's answers: whether they are near enough to the right ones.

    The right answers are those of the ONNX file as it is written, or of the torch module.

    served        the `Served` that `engines.load` made of the network
    network       the path of an ONNX file, or a torch module
    inputs        a batch: one tensor for each input of the network
    user_batches  further batches of the user's data
    Raises        Unavailable: the engine has loaded the network and fails on a batch
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
