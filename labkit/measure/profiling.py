"""Where does the time go? Operators and kernels by torch.profiler.

Profiling slows the program down: use it to find what to change, and `labkit.measure` to say by how
much.
"""

import os
from collections.abc import Callable
from typing import Any, NamedTuple

from labkit.files import atomic
from labkit.measure.clock import clock_of


def profile(fn: Callable, *, calls: int = 3) -> "Profile":
    """Run `fn` under torch.profiler, after one call to warm up: a `Profile`."""
    # its library writes notes of its own to standard error
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")
    import torch

    clock = clock_of()
    clock.time(fn)
    with torch.profiler.profile(acc_events=True) as profiler:
        clock.time(fn, calls=calls)
    return Profile(profiler, calls)


class Profile(NamedTuple):
    """The events that torch.profiler saw in `calls` calls."""

    profiler: Any
    calls: int

    def operators(self, top=15):
        """Return a DataFrame of the operators that took longest themselves, per call; times in ms.

        A kernel that no operator started, as in a CUDA graph, is in no row.

        self_ms    in the operator, without those it calls: of the device when kernels ran there,
                   else of the CPU
        total_ms   with those it calls
        """
        import pandas as pd

        events = self.profiler.key_averages()
        # a kernel's time is its operator's
        called = [event for event in events if event.device_type.name == "CPU"]
        kind = "cpu" if len(called) == len(events) else "device"
        rows = []
        for event in called:
            self_us = getattr(event, f"self_{kind}_time_total")
            total_us = getattr(event, f"{kind}_time_total")
            rows.append((event.key, event.count, self_us, total_us))
        frame = pd.DataFrame(rows, columns=["operator", "calls", "self_ms", "total_ms"])
        frame[["self_ms", "total_ms"]] /= 1e3  # from µs
        frame[["calls", "self_ms", "total_ms"]] /= self.calls
        return frame.sort_values("self_ms", ascending=False, ignore_index=True).head(top)

    def save_trace(self, path):
        """Write a trace file; open it at ui.perfetto.dev or in chrome://tracing."""
        with atomic(path) as temporary:
            self.profiler.export_chrome_trace(str(temporary))
