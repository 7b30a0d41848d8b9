"""Measure the times of operators and kernels with torch.profiler: where does the time go?

Profiling slows the program down. Use the profile to find what to change, and `labkit.measure` to
say by how much the change helped.
"""

import os
from collections.abc import Callable
from typing import Any, NamedTuple

from labkit.files import atomic
from labkit.measure.clock import clock_of


def profile(fn: Callable, *, calls: int = 3) -> "Profile":
    """Run `fn` under torch.profiler, after one call to warm up. Returns a `Profile`.

    calls  number of profiled calls
    """
    # the profiler's library writes notes to standard error
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")
    import torch

    clock = clock_of()
    clock.time(fn)
    with torch.profiler.profile(acc_events=True) as profiler:
        clock.time(fn, calls=calls)
    return Profile(profiler, calls)


class Profile(NamedTuple):
    """The events that torch.profiler saw in `calls` calls of a function.

    profiler  the finished `torch.profiler.profile`
    calls     number of profiled calls
    """

    profiler: Any
    calls: int

    def operators(self, top=15):
        """Return a DataFrame of the operators that take the most time, per call of the function.

        top  largest number of rows; the operators with the largest `self_ms` are taken

        The columns, beside the operator's name:

        calls      number of times that the operator ran
        self_ms    time in the operator, without the operators that it calls. It is the time on the
                   device if kernels ran there, else on the CPU
        total_ms   time in the operator and in the operators that it calls

        A kernel that no operator started, as in a CUDA graph, is in no row.
        """
        import pandas as pd

        events = self.profiler.key_averages()
        # an event of the CPU is an operator; its device time includes its kernels
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
        """Write a trace file to `path`, to be opened at ui.perfetto.dev or in chrome://tracing."""
        with atomic(path) as temporary:
            self.profiler.export_chrome_trace(str(temporary))
