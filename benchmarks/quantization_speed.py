"""The speed part of `quantization.py`: INT8 against fp32 and against the best peer, in the engines
of a CPU.

Batch 1, ten calls at a time, one thread, in interleaved pairs. Ours is the file of `--keep auto`
with the integers that the engine wants (`--recipe`). An engine that answers something else than a
file means is not timed with it.
"""

import torch
from quantization_peers import PEERS

from labkit import engines
from labkit.engines import fidelity
from labkit.measure import Plan, compare
from labkit.quantize.integer_grid import sqnr_db

ENGINES = ("onnxruntime", "openvino")
OURS = "for_"  # begins the name of our file for an engine
ANY = 100.0  # tolerance: INT8 answers differ, and how much is told by their SQNR


def speed(figures, case, exact, files, *, seconds):
    """Figures for each engine.

    exact    the answers to `case.tested` in fp32
    files    {way: path} of INT8 files, ours among them where there is one
    seconds  of each of the races
    """
    batch = torch.from_numpy(next(iter(case.tested.batches)))
    for engine in ENGINES:
        ours, some = (
            OURS + engine,
            {way: path for way, path in files.items() if way in (*PEERS, OURS + engine)},
        )
        served = {
            way: found
            for way, path in some.items()
            if (found := faithful(figures, case, engine, path, batch))
        }
        quality = {
            way: sqnr_db(exact[: len(batch)], run(batch).numpy()) for way, run in served.items()
        }
        best = max((way for way in served if way != ours), key=quality.get, default=None)
        arms = {way: served[way] for way in (ours, best) if way in served}
        if arms:
            whole = engines.load(engine, case.path, batch[:1], threads=1)
            for way, row in race({"fp32": whole, **arms}, batch, seconds).items():
                told(figures, f"{case.name}_{way}_speed_in_{engine}", row)
        if len(arms) == 2:
            row = race({best: served[best], ours: served[ours]}, batch, seconds)[ours]
            told(figures, f"{case.name}_{ours}_against_{best}", row)
            figures.add(f"{case.name}_{ours}_called_slower", row.verdict == "slower", at_most=0)


def faithful(figures, case, engine, path, batch):
    """A file in an engine, or None where the engine cannot run it or answers something else than
    it means.
    """
    name = f"{case.name} {path.stem} in {engine}"
    try:
        served = engines.load(engine, path, batch[:1], precision="int8", threads=1)
        meant = fidelity.of_engine(served, path, [batch])
    except Exception as error:  # a peer's file may fail in its own way
        print(f"# {name}: {' '.join(str(error).split())[:200]}")
        return None
    if meant.db < fidelity.ENGINE_DB:
        print(f"# {name} is not timed: it does not answer what the file means ({meant})")
        return None
    return served


def race(arms, batch, seconds):
    """{way: the row of its ratio} to the first."""
    calls = {name: ten_times(served) for name, served in arms.items()}
    inputs = [each[None] for each in batch[:4]]
    found = compare(calls, tolerance=ANY, inputs=inputs, device="cpu", plan=Plan(seconds=seconds))
    return {way: found[way] for way in list(arms)[1:]}


def ten_times(served):
    return lambda x: [served(x) for _ in range(10)][-1]


def told(figures, name, row):
    """A figure for a ratio of times (2 = twice as fast), and how sure it is."""
    figures.add(name, row.median, unit="x")
    print(f"#     {row.low:.2f} to {row.high:.2f}, floor {row.floor:.2f}, {row.arm_ms / 10:.3g} ms")
