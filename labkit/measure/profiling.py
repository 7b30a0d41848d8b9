"""Where does the time go? Operators and kernels by torch.profiler.

Profiling slows the program down: use it to find what to change, and `labkit.measure` to say by how much.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from labkit.files import atomic
from labkit.measure.clock import as_calls, clock_of

CALL = "one call"  # the mark around each profiled call


def profile(fn, *, device=None, inputs=None, calls=3):
    """Run `fn` under torch.profiler, after one call to warm up: a `Profile`.

    inputs  as in `measure.latency`: rotating inputs, each a tensor or a tuple of arguments
    """
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # its library writes notes of its own to standard error
    import torch

    clock, inputs = clock_of(device), as_calls(inputs)
    clock.time(fn, inputs[0])
    with torch.profiler.profile(acc_events=True) as profiler:
        for index in range(calls):
            with torch.profiler.record_function(CALL):
                fn(*inputs[index % len(inputs)])
            clock.synchronize()
    return Profile(profiler, calls)


@dataclass(frozen=True)
class Profile:
    """The events that torch.profiler saw in `calls` calls."""

    profiler: Any
    calls: int

    def operators(self, top=15):
        """A DataFrame of the operators that took longest themselves, per call; times in ms, `share` from 0 to 1.

        self_ms    in the operator, without those it calls: of the device when kernels ran there, else of the CPU
        total_ms   with those it calls
        """
        import pandas as pd

        kind = "device" if self.kernels() else "cpu"
        rows = [
            (event.key, event.count, getattr(event, f"self_{kind}_time_total"), getattr(event, f"{kind}_time_total"))
            for event in self.profiler.key_averages()
            if event.key != CALL
        ]
        frame = pd.DataFrame(rows, columns=["operator", "calls", "self_ms", "total_ms"])
        frame[["self_ms", "total_ms"]] /= 1e3  # from µs
        frame[["calls", "self_ms", "total_ms"]] /= self.calls
        frame["share"] = frame["self_ms"] / max(frame["self_ms"].sum(), 1e-12)
        return frame.sort_values("self_ms", ascending=False, ignore_index=True).head(top)

    def kernels(self):
        """Kernels that ran on the device, a call; 0 on a CPU."""
        return sum(event.device_type.name != "CPU" for event in self.profiler.events()) / self.calls

    def save_trace(self, path):
        """Write a trace file; open it at ui.perfetto.dev or in chrome://tracing. Returns the path."""
        with atomic(path) as temporary:
            self.profiler.export_chrome_trace(str(temporary))
        return Path(path)
