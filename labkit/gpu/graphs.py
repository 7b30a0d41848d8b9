"""Time activations with and without a CUDA graph.

A CUDA graph replays recorded kernels, so that Python does not launch each one, as in lesson 09.
"""

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
    """A CUDA graph of repeated calls of `function(x, y)`. Calling the object replays the graph.

    The graph is captured once. The object keeps a reference to the tensors that the graph reads and
    writes. Otherwise their memory could be freed and reused, and a replay would overwrite something
    else.

    function  function (x, y) that writes its result into y
    x, y      the tensors that it is called with
    calls     number of calls of the function in the graph
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
    """Measure copying, ReLU and FastSwish, each called from Python and replayed as a graph."""
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
    """Return the arms for one size of tensor: {`Arm`: function () that makes the arm's function}.

    Each activation gives two arms: called from Python, and replayed as a graph.

    size    numbers in the tensor
    calls   how often an arm calls the activation
    makers  {name: function () -> the activation}; the activation is a function (x, y) that writes y
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
    """Return the baseline of an arm: the arm that calls the same function from Python."""
    return replace(arm, variant=arm.variant.removesuffix(GRAPH))


def into(function):
    """Return a function (x, y) that writes the result of `function(x)` into y."""

    def run(x, y):
        y.copy_(function(x))

    return run


def many_times(function, x, y, calls):
    """Return a function () that calls `function(x, y)` as often as `calls` says, and returns y."""

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
    """Return (function () that does the calls from Python, number of calls).

    make  function () -> the activation, a function (x, y) that writes y
    size  numbers in the tensor
    """
    return many_times(make(), *tensors(bench, size), calls), calls


def graphed(bench, make, size, calls):
    """Return (`Graph` that replays the calls, number of calls).

    make, size, calls  as in `plain`
    Raises             Unavailable: there is no GPU
    """
    if not bench.on_gpu:
        raise Unavailable("There are no CUDA graphs here.", expected="an NVIDIA GPU", found="a CPU")
    return Graph(make(), *tensors(bench, size), calls), calls
