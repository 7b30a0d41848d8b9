"""Where does the time go? Operators and kernels by torch.profiler, Python functions by cProfile.

Profiling slows the program down: use it to find what to change, and `labkit.measure` to say by how much.
"""

import cProfile
import os
import pstats
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from labkit.files import atomic
from labkit.measure.clock import as_calls, clock_of

CALL = "one call"  # the mark around each profiled call
DEEPEST = 20  # levels of a Python flame chart
NARROWEST = 0.002  # of the whole: boxes thinner than this are left out


def profile(fn, *, device=None, inputs=None, calls=3):
    """Run `fn` under torch.profiler, after one call to warm up: a `Profile`.

    inputs  as in `measure.latency`: rotating inputs, each a tensor or a tuple of arguments
    """
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # its library writes notes of its own to standard error
    from torch.profiler import ProfilerActivity, record_function
    from torch.profiler import profile as torch_profile

    clock, inputs = clock_of(device), as_calls(inputs)
    kind = clock.device.split(":")[0].upper()
    activities = {ProfilerActivity.CPU, getattr(ProfilerActivity, kind, ProfilerActivity.CPU)}
    clock.time(fn, inputs[0])
    with torch_profile(activities=activities, acc_events=True) as profiler:
        for index in range(calls):
            with record_function(CALL):
                fn(*inputs[index % len(inputs)])
            clock.synchronize()
    return Profile(profiler, calls)


@dataclass(frozen=True)
class Profile:
    """What torch.profiler saw in `calls` calls."""

    profiler: Any
    calls: int

    def operators(self, top=15):
        """A DataFrame of the operators that took longest themselves, per call; times in ms, `share` from 0 to 1.

        self_ms    in the operator, without those it calls: of the device when kernels ran there, else of the CPU
        total_ms   with those it calls
        """
        import pandas as pd

        averages = [event for event in self.profiler.key_averages() if event.key != CALL]
        on_device = self.kernels() > 0
        ours = "self_device_time_total" if on_device else "self_cpu_time_total"
        whole = "device_time_total" if on_device else "cpu_time_total"
        frame = pd.DataFrame(
            {
                "operator": [event.key for event in averages],
                "calls": [event.count / self.calls for event in averages],
                "self_ms": [getattr(event, ours) / 1e3 / self.calls for event in averages],
                "total_ms": [getattr(event, whole) / 1e3 / self.calls for event in averages],
            }
        )
        frame["share"] = frame["self_ms"] / max(frame["self_ms"].sum(), 1e-12)
        return frame.sort_values("self_ms", ascending=False, ignore_index=True).head(top)

    def kernels(self):
        """Kernels that ran on the device, a call; 0 on a CPU."""
        return sum(not on_cpu(event) for event in self.profiler.events()) / self.calls

    def launches(self):
        """How often work was started, a call: kernels on a GPU, outermost operators on a CPU."""
        return (
            self.kernels()
            or sum(event.cpu_parent is not None and event.cpu_parent.name == CALL for event in self.host_events())
            / self.calls
        )

    def host_events(self):
        return [event for event in self.profiler.events() if on_cpu(event)]

    def flame(self, call=-1):
        """The flame chart of one call as a picture: time from left to right, callees below callers."""
        from labkit.plots import flame

        events = self.host_events()
        root = sorted((event for event in events if event.name == CALL), key=lambda event: event.time_range.start)[call]
        start, end = root.time_range.start, root.time_range.end
        inside = [e for e in events if start <= e.time_range.start <= end and e.thread == root.thread and e is not root]
        boxes = [
            (depth(e) - 1, (e.time_range.start - start) / 1e3, e.time_range.elapsed_us() / 1e3, short(e.name))
            for e in inside
        ]
        return flame(boxes, label="time in this call (ms)")

    def save_trace(self, path):
        """Write a trace file; open it at ui.perfetto.dev or in chrome://tracing. Returns the path."""
        with atomic(path) as temporary:
            self.profiler.export_chrome_trace(str(temporary))
        return Path(path)

    def _repr_html_(self):
        return self.operators().to_html(index=False, float_format="{:.3f}".format)


def short(name):
    """An operator's name without the prefixes that fill a narrow box."""
    return name.removeprefix("aten::").removeprefix("autograd::engine::evaluate_function: ")


def on_cpu(event):
    return event.device_type.name == "CPU"


def depth(event):
    """How many events an event is inside of."""
    levels = 0
    while event.cpu_parent is not None:
        event, levels = event.cpu_parent, levels + 1
    return levels


def profile_python(fn, *, inputs=None, calls=3):
    """Run `fn` under cProfile, after one call to warm up: a `PythonProfile`."""
    inputs = as_calls(inputs)
    fn(*inputs[0])
    profiler = cProfile.Profile()
    for index in range(calls):
        profiler.runcall(fn, *inputs[index % len(inputs)])
    return PythonProfile(profiler, calls, call_tree(fn, *inputs[0]))


@dataclass(frozen=True)
class PythonProfile:
    """What cProfile saw in `calls` calls, and `boxes`: who called whom in one more (cProfile keeps no stacks)."""

    profiler: Any
    calls: int
    boxes: list

    def functions(self, top=15):
        """A DataFrame of the functions that took longest themselves, per call; times in ms."""
        import pandas as pd

        rows = [
            (title(key), calls / self.calls, 1e3 * own / self.calls, 1e3 * total / self.calls)
            for key, (_, calls, own, total, _) in pstats.Stats(self.profiler).stats.items()
        ]
        frame = pd.DataFrame(rows, columns=["function", "calls", "self_ms", "total_ms"])
        return frame.sort_values("self_ms", ascending=False, ignore_index=True).head(top)

    def flame(self):
        """The flame chart of one call as a picture: time from left to right, callees below callers."""
        from labkit.plots import flame

        end = max((start + width for _, start, width, _ in self.boxes), default=0.0)
        wide = [box for box in self.boxes if box[0] < DEEPEST and box[2] >= NARROWEST * end]
        return flame(wide, label="time in this call (ms)")

    def save(self, path):
        """Write a .prof file; open it with `snakeviz FILE` or pstats. Returns the path."""
        with atomic(path) as temporary:
            self.profiler.dump_stats(temporary)
        return Path(path)

    def _repr_html_(self):
        return self.functions().to_html(index=False, float_format="{:.3f}".format)


def title(key):
    """A function as text: file name, line and name."""
    file, line, name = key
    return name if file == "~" else f"{file_title(file)}:{line} {name}"


def file_title(file):
    """A file's name; a notebook cell has none of its own."""
    return "cell" if "ipykernel_" in file else Path(file).name


def call_tree(fn, *args):
    """[(depth, start, width, name)] in ms of all that one call of `fn` calls in this thread."""
    boxes, stack, begin = [], [], time.perf_counter()

    def hook(frame, event, argument):
        now = time.perf_counter()
        if event == "call":
            stack.append((f"{file_title(frame.f_code.co_filename)} {frame.f_code.co_name}", now))
        elif event == "c_call":
            stack.append((argument.__name__, now))
        elif stack:  # a return, or an exception out of C
            name, start = stack.pop()
            boxes.append((len(stack), 1e3 * (start - begin), 1e3 * (now - start), name))

    earlier = sys.getprofile()
    sys.setprofile(hook)
    try:
        fn(*args)
    finally:
        sys.setprofile(earlier)
    return boxes[:-1] if boxes and boxes[-1][-1] == "setprofile" else boxes
