"""Experiments that take longer than a lesson: one experiment, one file, one name.

The experiment convnext-training is `convnext_training.py`. The docstring of such a file says what
the experiment measures, how long it takes and what `quick` leaves out. The file holds

MINUTES         how many minutes it measures where the user does not say
measure(scale)  yields rows of the ledger (Training, Latency, ...), each as soon as it is measured

The command line, the tests and `labkit experiment --list` find the file without being told, and
list experiments by name.
"""

import importlib
import pkgutil
import random
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, replace
from types import ModuleType
from typing import TYPE_CHECKING, Any

from labkit import device as devices
from labkit import ledger
from labkit.errors import LabError, require_known
from labkit.ledger.rows import Completion, Run

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Scale:
    """How much an experiment measures.

    quick    True for a small network and few settings: to see that it works, in under two minutes
    seconds  seconds for all that is timed; exporting, compiling and first calls come on top
    device   a `torch.device`
    """

    quick: bool
    seconds: float
    device: "torch.device"


def names() -> tuple[str, ...]:
    """Return the names of all experiments, sorted, such as "convnext-training"."""
    files = sorted(module.name for module in pkgutil.iter_modules(__path__))
    return tuple(name.replace("_", "-") for name in files if not name.startswith("_"))


def get(name: str) -> ModuleType:
    """Return the module of an experiment. Raises LabError when there is none of this name."""
    require_known(name, names(), "experiment")
    return importlib.import_module(f"{__name__}.{name.replace('-', '_')}")


def summary(name: str) -> str:
    """Return the first paragraph of an experiment's docstring, as one line."""
    return " ".join((get(name).__doc__ or "").partition("\n\n")[0].split())


def run(
    name: str, *, quick: bool = False, minutes: float | None = None, seed: int = 0
) -> Iterator[Any]:
    """Run an experiment. Each of its rows is written to the ledger, and then yielded.

    The rows carry the key of a new `Run` of this experiment. After the last row, a `Completion` is
    written. An interrupted experiment leaves its rows without a `Completion`; `ledger.record`
    records only runs that have one.

    name     one of `names()`
    quick    as in `Scale`; True gives the run the profile "quick", False the profile "lab"
    minutes  minutes for all that is timed, above 0; None: half a minute if quick, otherwise the
             experiment's own `MINUTES`
    seed     seed of weights and inputs
    Raises   LabError for an unknown name, and for `minutes` out of range
    """
    module = get(name)
    if minutes is not None and not 0 < minutes < float("inf"):
        raise LabError(
            "--minutes must be above 0.",
            expected="a number of minutes above 0",
            found=str(minutes),
            fix="say --minutes 10",
        )
    if minutes is None:
        minutes = 0.5 if quick else module.MINUTES
    _seed_everything(seed)
    profile = "quick" if quick else "lab"
    experiment_run = _begin(name, profile, seed)
    start = time.monotonic()

    # Each row is stored as soon as it is measured.
    for measured in module.measure(Scale(quick, 60 * minutes, devices.pick())):
        row = replace(
            measured,
            run_key=experiment_run.run_key,
            experiment=name,
            machine_key=experiment_run.machine_key,
            commit=experiment_run.commit,
            measured_utc=ledger.now(),
        )
        ledger.add(row)
        yield row

    completion = Completion(
        run_key=experiment_run.run_key,
        notebook=name,
        cell_count=0,
        seconds=time.monotonic() - start,
        finished_utc=ledger.now(),
    )
    ledger.add(completion)


def _begin(name, profile, seed):
    """Write the machine and a new run of an experiment to the ledger. Returns the `Run`."""
    machine = devices.describe()
    experiment_run = Run(
        run_key=f"{name}-{uuid.uuid4().hex[:12]}",
        notebook=name,
        profile=profile,
        seed=seed,
        started_utc=ledger.now(),
        machine_key=machine.machine_key,
        commit=devices.commit(),
    )
    ledger.add(machine, experiment_run)
    return experiment_run


def _seed_everything(seed):
    """Seed the random numbers of Python and of torch."""
    import torch

    random.seed(seed)
    torch.manual_seed(seed)
