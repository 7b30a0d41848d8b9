"""Measures the arms of an item, by one procedure for all tables of times."""

import gc
import itertools
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

import torch

from labkit import device as devices
from labkit.errors import LabError
from labkit.gpu.arms import (
    Arm,
    described,
)
from labkit.gpu.journal import Journal, now
from labkit.gpu.timing import Stopwatch


@dataclass
class Bench:
    """All that an item needs to measure: the device, the journal, sizes and a deadline.

    item     name of the item
    journal  the `Journal` to which rows are written
    device   the GPU, or the CPU
    tiny     True: sizes that a CPU can compute; the numbers then mean nothing
    end      deadline of the item, on the clock of `time.monotonic`
    last     lines (`described`) of arms that were running when an earlier try was killed; they are
             measured last
    facts    fields of the machine, as `labkit.gpu.machine.describe` returns them
    names    counter, which gives each compiled function another name
    """

    item: str
    journal: Journal
    device: torch.device
    tiny: bool
    end: float
    last: frozenset = frozenset()
    facts: dict = field(default_factory=dict)
    names: Any = field(default_factory=itertools.count)

    def __post_init__(self):
        self.stopwatch = Stopwatch(self.device)

    @property
    def on_gpu(self):
        return self.device.type == "cuda"

    def size(self, full, tiny):
        """Return `full`, or `tiny` where the item runs with tiny sizes."""
        return tiny if self.tiny else full

    def plan(self, arms):
        """Write into the journal which arms will be measured.

        An arm without a row at the end gets a row with the reason.
        """
        self.journal.append(kind="plan", item=self.item, arms=[asdict(arm) for arm in arms])

    def begin(self, arm):
        """Write into the journal which arm is being made ready now."""
        self.journal.append(kind="arm", item=self.item, label=described(arm))

    def row(
        self,
        arm: Arm,
        quantity: str,
        value: float | None = None,
        unit: str | None = None,
        **fields: Any,
    ) -> None:
        """Write a row into the journal; the row is on disk when this returns.

        quantity  what was measured: "step", "epoch", "forward", "memory", ...
        value     the measured value in `unit`; None where it could not be measured, and the field
                  `reason` says why
        fields    low, high, samples, peak_bytes, reason, and other fields of the row
        """
        measured = {**asdict(arm), "quantity": quantity, "value": value, "unit": unit, **fields}
        machine = {
            "device": self.device.type,
            "torch": str(torch.__version__),
            "card": self.facts.get("gpu"),
        }
        self.journal.append(kind="row", item=self.item, **measured, **machine, measured_utc=now())

    def failed(self, arm, quantity, error):
        """Write the row of an arm that could not be measured, and free the arm's memory."""
        self.row(arm, quantity, reason=reason(error))
        self.clean()

    def clean(self):
        """Free the memory of objects that nothing refers to any more."""
        gc.collect()
        if self.on_gpu:
            torch.cuda.empty_cache()

    def allocated_bytes(self) -> int:
        """Return how many bytes of the GPU's memory tensors take now; 0 on a CPU."""
        return torch.cuda.memory_allocated() if self.on_gpu else 0

    def peak_bytes(self, call: Callable, *, above: int) -> int | None:
        """Call a function once and return the peak of the GPU's memory during the call, in bytes.

        On a CPU the function is not called, and the peak is None.

        above  bytes to subtract: what was allocated before the arm was made
        """
        if not self.on_gpu:
            return None
        torch.cuda.reset_peak_memory_stats()
        call()
        torch.cuda.synchronize()
        return torch.cuda.max_memory_allocated() - above

    def compiled(self, function: Callable, *, dynamic: bool = False) -> Callable:
        """Return a function compiled by torch.compile as one whole graph.

        torch stores only a few compiled forms of the same Python code; therefore each compiled
        function gets a code object of its own. With tiny sizes the graph is captured and
        differentiated, and not compiled further: that takes one second instead of twenty.

        dynamic  True: compile once for all batch sizes
        """
        if not self.tiny:
            devices.require_compiler(self.device)

        def run(*inputs):
            return function(*inputs)

        run.__code__ = run.__code__.replace(co_name=f"run_{next(self.names)}")
        backend = "aot_eager" if self.tiny else "inductor"
        return torch.compile(
            run, fullgraph=True, dynamic=dynamic and not self.tiny, backend=backend
        )


def reason(error: BaseException | str) -> str:
    """Return in one line why something could not be measured.

    error  the exception, or the reason itself
    """
    if isinstance(error, str):
        return error
    if isinstance(error, LabError):
        return f"{error.what} Found: {error.found}" if error.found else error.what
    lines = [line for line in str(error).strip().splitlines() if line.strip()]
    first_line = lines[0] if lines else "no reason given"
    kind = "out of memory" if devices.is_out_of_memory(error) else type(error).__name__
    return without_paths(f"{kind}: {first_line}")[:300]


def without_paths(text):
    """Return a text with each path cut to the name of the file, because records are published."""
    words = text.split(" ")
    for index, word in enumerate(words):
        if word.count("/") > 1:
            words[index] = word.rpartition("/")[2]
    return " ".join(words)
