"""Count the operators of a graph, and measure how long each of them takes."""

import json
import tempfile
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import onnx

from labkit.export.gate import checked
from labkit.export.inputs import random_inputs
from labkit.export.runtime import answers, session
from labkit.export.walk import inside

if TYPE_CHECKING:
    import pandas

# Convolutions and matrix products: nearly all the arithmetic of a network.
RECURRENT = ("GRU", "LSTM", "RNN")
HEAVY = ("Conv", "MatMul", "Gemm", "ConvTranspose", "Einsum", *RECURRENT)
QUANTIZED = HEAVY[:3]  # the operators for which every engine has integer kernels
WARM_UP = 3  # calls before those that are profiled


def operators(model: str | Path | onnx.ModelProto) -> dict[str, int]:
    """Count the nodes of each operator: {operator: number of nodes}, the most frequent first.

    Nodes inside branches and loops are counted, too.

    model  path of an ONNX file, or a ModelProto
    """
    model = (
        model if isinstance(model, onnx.ModelProto) else onnx.load(model, load_external_data=False)
    )
    return dict(Counter(node.op_type for node in inside(model.graph, onnx.NodeProto)).most_common())


def nodes(model: str | Path | onnx.ModelProto) -> int:
    """Return how many nodes a model has, those inside branches and loops included.

    model  path of an ONNX file, or a ModelProto
    """
    return sum(operators(model).values())


def node_times(
    path: str | Path, batch: Any, *, level: str = "all", calls: int = 20
) -> "pandas.DataFrame":
    """Measure how long each node of a model takes, in ONNX Runtime on the CPU.

    Returns a DataFrame (node, operator, ms), in the order in which the nodes run. A time is the
    median over the calls. The profiler slows small operators down: compare the times with each
    other, and do not take them for those of an ordinary call.

    path    path of the ONNX file
    batch   batch size of the made-up input
    level   one of `runtime.LEVELS`. With "none" the nodes are those of the file, otherwise those of
            the graph as ONNX Runtime has rewritten it
    calls   number of calls that are profiled, after a few calls to warm up
    Source  ONNX Runtime's profiler
    """
    import pandas as pd

    events = pd.DataFrame(_node_events(path, batch, level, calls)).sort_values("ts")
    events["node"] = events["name"].str.removesuffix("_kernel_time")
    events["operator"] = events["args"].str["op_name"]
    # of microseconds
    milliseconds = events.groupby(["node", "operator"], sort=False)["dur"].median() / 1e3
    return milliseconds.rename("ms").reset_index()


def operator_times(
    path: str | Path, batch: Any, *, level: str = "all", calls: int = 20
) -> "pandas.DataFrame":
    """Add up the times of `node_times` for each operator.

    Returns a DataFrame (operator, nodes, ms, share), the longest first. The arguments are those of
    `node_times`.
    """
    times_by_operator = node_times(path, batch, level=level, calls=calls).groupby("operator")["ms"]
    frame = times_by_operator.agg(nodes="size", ms="sum").reset_index()
    frame["share"] = frame["ms"] / frame["ms"].sum()
    return frame.sort_values("ms", ascending=False, ignore_index=True)


def _node_events(path, batch, level, calls):
    """Return the profiler's event of every node in every call after the warm-up."""
    inputs = tuple(tensor.numpy() for tensor in random_inputs(checked(path), batch))
    with tempfile.TemporaryDirectory() as folder:
        profile = {"enable_profiling": True, "profile_file_prefix": str(Path(folder) / "profile")}
        opened = session(path, level, **profile)
        for _ in range(WARM_UP + calls):
            answers(opened, inputs)
        events = json.loads(Path(opened.end_profiling()).read_text(encoding="utf-8"))
    starts = sorted(event["ts"] for event in events if event["name"] == "model_run")
    kernels = [
        event
        for event in events
        if event.get("cat") == "Node" and event["name"].endswith("_kernel_time")
    ]
    return [event for event in kernels if event["ts"] >= starts[WARM_UP]]
