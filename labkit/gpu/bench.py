"""Holds what an item of the GPU command needs to measure: device, journal, sizes, deadline."""

import gc
import itertools
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

import torch

from labkit import device as devices
from labkit.errors import LabError
from labkit.gpu.arms import Arm, described
from labkit.gpu.journal import Journal, now
from labkit.gpu.timing import Stopwatch


@dataclass
class Bench:
    """What an item needs for its measurements: device, journal, sizes and a deadline.

    item     name of the item
    journal  the `Journal` to which rows are written
    device   the GPU, or the CPU if there is none
    tiny     True: sizes that a CPU can compute; the numbers then mean nothing
    end      deadline of the item, on the clock of `time.monotonic`
    last     set of arms, as `described` texts, during which an earlier worker was killed; they are
             measured last
    facts    properties of the machine, {field: value}, as `labkit.gpu.machine.describe` returns
             them
    names    a counter; it gives each compiled function a different name
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
        """Return `tiny` if the item runs with tiny sizes, else `full`."""
        return tiny if self.tiny else full

    def plan(self, arms):
        """Write to the journal which arms will be measured.

        So the process that reads the journal can write a row, with a reason, for each arm that is
        not measured.

        arms  an iterable of `Arm`s
        """
        self.journal.append(kind="plan", item=self.item, arms=[asdict(arm) for arm in arms])

    def begin(self, arm):
        """Write to the journal that the measurement of an arm begins."""
        self.journal.append(kind="arm", item=self.item, label=described(arm))

    def row(
        self,
        arm: Arm,
        quantity: str,
        value: float | None = None,
        unit: str | None = None,
        **fields: Any,
    ) -> None:
        """Write a row to the journal; it is on disk when this returns.

        quantity  what was measured: "step", "epoch", "forward", "memory", ...
        value     the measured value in `unit`; None if it could not be measured
        fields    further fields of the row: low, high, samples, peak_bytes, ... Without a value,
                  `reason` says why
        """
        measured = {**asdict(arm), "quantity": quantity, "value": value, "unit": unit, **fields}
        machine = {
            "device": self.device.type,
            "torch": str(torch.__version__),
            "card": self.facts.get("gpu"),
        }
        self.journal.append(kind="row", item=self.item, **measured, **machine, measured_utc=now())

    def failed(self, arm, quantity, error):
        """Write the row of an arm that could not be measured, and free the arm's memory.

        The row has the reason.

        error  the exception
        """
        self.row(arm, quantity, reason=reason(error))
        self.clean()

    def clean(self):
        """Free the memory of objects that nothing refers to any more, on the GPU, too."""
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
        """Compile a function by torch.compile, as one whole graph. Returns the compiled function.

        torch stores only a few compiled versions of the same Python code. Therefore each function
        gets a code object of its own. With tiny sizes the graph is only captured and
        differentiated, which takes one second instead of twenty.

        dynamic  True: compile once for all batch sizes
        Raises   Unavailable: there is no compiler for this device
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
    """Return a text of one line that says why something could not be measured.

    error  an exception, or a text that is returned unchanged
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
    """Shorten each path in a text to the name of the file, because records are published."""
    words = text.split(" ")
    for index, word in enumerate(words):
        if word.count("/") > 1:
            words[index] = word.rpartition("/")[2]
    return " ".join(words)
