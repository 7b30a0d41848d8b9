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
        return (len(self.profiler.events()) - len(self._on_cpu())) / self.calls

    def launches(self):
        """The number of starts of work, a call: kernels on a GPU, outermost operators on a CPU."""
        outermost = [event for event in self._on_cpu() if event.cpu_parent and event.cpu_parent.name == CALL]
        return self.kernels() or len(outermost) / self.calls

    def _on_cpu(self):
        return [event for event in self.profiler.events() if event.device_type.name == "CPU"]

    def flame(self, **how):
        """The flame chart of the last call as a picture: time from left to right, the called below their callers.

        how  as in `plots.flame`: bands, levels, end, ax
        """
        from labkit.plots import flame

        return flame(self.boxes(), label="time in this call (ms)", **how)

    def boxes(self):
        """[(depth, start, width, name)] of the operators of the last call; times in ms."""
        events = self._on_cpu()
        root = max((event for event in events if event.name == CALL), key=lambda event: event.time_range.start)
        start, end = root.time_range.start, root.time_range.end
        boxes = []
        for event in events:
            inside = start <= event.time_range.start <= end and event.thread == root.thread
            if inside and event is not root:
                name = event.name.removeprefix("aten::").removeprefix("autograd::engine::evaluate_function: ")
                begin = (event.time_range.start - start) / 1e3
                boxes.append((_depth(event) - 1, begin, event.time_range.elapsed_us() / 1e3, name))
        return boxes

    def save_trace(self, path):
        """Write a trace file; open it at ui.perfetto.dev or in chrome://tracing. Returns the path."""
        with atomic(path) as temporary:
            self.profiler.export_chrome_trace(str(temporary))
        return Path(path)

    def _repr_html_(self):
        return self.operators().to_html(index=False, float_format="{:.3f}".format)


def _depth(event):
    """The number of events around an event."""
    levels = 0
    while event.cpu_parent is not None:
        event, levels = event.cpu_parent, levels + 1
    return levels
