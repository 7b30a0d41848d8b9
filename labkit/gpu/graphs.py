"""Times activations that a CUDA graph replays: kernels start without Python, as in lesson 09."""

import functools
from collections.abc import Callable
from dataclasses import replace

import torch

from labkit.errors import Unavailable
from labkit.gpu.arms import Arm
from labkit.gpu.bench import Bench
from labkit.gpu.measuring import measure
from labkit.methods.fastswish import form

CALLS = 16  # of the activation in one graph; fewer of the largest tensors
GRAPH = ", as a CUDA graph"


class Graph:
    """A CUDA graph of repeated calls of `function(x, y)`: captured once, replayed by each call.

    The object refers to the tensors that the graph reads and writes, which keeps their memory in
    use. Otherwise the capture of another graph would free this memory, and a replay would write to
    memory that holds something else.

    x, y   input and output of the function
    calls  number of calls of the function in the graph
    """

    def __init__(self, function: Callable, x: torch.Tensor, y: torch.Tensor, calls: int):
        self.tensors = (x, y)
        self.graph = torch.cuda.CUDAGraph()
        self.function = many_times(function, x, y, calls)

        # Warm up on a stream of its own: nothing may be compiled, or allocated for the first time,
        # in the capture.
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(3):
                self.function()
        torch.cuda.current_stream().wait_stream(stream)
        torch.cuda.synchronize()

        with torch.cuda.graph(self.graph):
            self.function()

    def __call__(self):
        self.graph.replay()
        return self.tensors[1]


def graphs(bench: Bench) -> None:
    """Measure copying, ReLU and FastSwish, called from Python and replayed as a graph."""
    sizes = bench.size((2**10, 2**21, 2**23, 2**26), (2**10,))
    makers = {
        "copying": lambda: lambda x, y: y.copy_(x),
        "ReLU": lambda: lambda x, y: torch.clamp_min(x, 0, out=y),
        "FastSwish, naive": lambda: into(form("naive")),
        "FastSwish, Triton": lambda: into(form("triton")),
        "ReLU, compiled": lambda: bench.compiled(into(torch.relu), dynamic=True),
        "FastSwish, compiled": lambda: bench.compiled(into(form("naive")), dynamic=True),
    }
    # compiled once for all sizes
    makers = {name: functools.cache(make) for name, make in makers.items()}
    groups = [group_of(bench, size, min(CALLS, sizes[-1] // size), makers) for size in sizes]
    measure(bench, groups, "call", against=from_python, seconds=0.1, race_seconds=3.0)


def group_of(bench, size, calls, makers):
    """Return the arms of one size: each function called from Python, then replayed as a graph.

    calls   number of calls of the function that an arm does
    makers  {name: function that returns `function(x, y)`, which writes y}
    """
    group = {}
    for name, make in makers.items():
        common = {"experiment": "cuda-graph", "compiled": "compiled" in name}
        arm = Arm(variant=f"{name}, {size:,} numbers", **common)
        group[arm] = functools.partial(plain, bench, make, size, calls)
        group[replace(arm, variant=arm.variant + GRAPH)] = functools.partial(
            graphed, bench, make, size, calls
        )
    return group


def from_python(arm):
    """Return the baseline of an arm: the same function, called from Python."""
    return replace(arm, variant=arm.variant.removesuffix(GRAPH))


def into(function):
    """Return a function (x, y) that writes the result of `function(x)` into y."""

    def run(x, y):
        y.copy_(function(x))

    return run


def many_times(function, x, y, calls):
    """Return a function without arguments that calls `function(x, y)` many times and returns y."""

    def run():
        with torch.inference_mode():
            for _ in range(calls):
                function(x, y)
        return y

    return run


def tensors(bench, size):
    """Return (x, y) with `size` numbers each on the device.

    x holds random numbers that are always the same; y is not initialised.
    """
    generator = torch.Generator().manual_seed(0)
    x = 3 * torch.randn(size, generator=generator).to(bench.device)
    return x, torch.empty_like(x)


def plain(bench, make, size, calls):
    """Return (a function that does the calls from Python, the number of calls)."""
    return many_times(make(), *tensors(bench, size), calls), calls


def graphed(bench, make, size, calls):
    """Return (the `Graph` that replays the calls, the number of calls).

    Raises  Unavailable without a GPU
    """
    if not bench.on_gpu:
        raise Unavailable("There are no CUDA graphs here.", expected="an NVIDIA GPU", found="a CPU")
    return Graph(make(), *tensors(bench, size), calls), calls
