"""What a graph consists of, and where its time goes."""

import json
import statistics
import tempfile
from collections import Counter
from pathlib import Path

import onnx

from labkit import device as devices
from labkit.errors import LabError
from labkit.export.gate import checked
from labkit.export.inputs import random_inputs
from labkit.export.walk import graphs

# How far ONNX Runtime may change a graph before it runs it; each level includes those before it.
LEVELS = {
    "none": "ORT_DISABLE_ALL",  # run as written
    "basic": "ORT_ENABLE_BASIC",  # constants, redundant nodes, batch norm: still standard operators
    "extended": "ORT_ENABLE_EXTENDED",  # fused operators of its own, such as FusedConv
    "all": "ORT_ENABLE_ALL",  # and another memory layout, made for this machine
}
WARM_UP = 3


def operators(model):
    """{operator: how many nodes}, most frequent first, inner graphs included: of a path or a ModelProto."""
    model = model if isinstance(model, onnx.ModelProto) else onnx.load(model, load_external_data=False)
    return dict(Counter(node.op_type for graph in graphs(model.graph) for node in graph.node).most_common())


def nodes(model):
    """How many nodes a path or a ModelProto has."""
    return sum(operators(model).values())


def operator_times(path, batch, *, level="all", threads=None, calls=20):
    """Where the time of a call goes: a DataFrame (operator, nodes, ms, share), the longest first.

    batch    items of the made-up input
    level    of `LEVELS`; with "none" the operators are those of the file, else those it is rewritten into
    calls    how many are profiled, after a few to warm up; a node's time is its median over them
    Source   ONNX Runtime's own profile; profiling slows small operators down, so read it as shares
    """
    import pandas as pd

    seconds = {}
    for event in node_events(path, batch, level, threads, calls):
        key = event["args"]["op_name"], event["name"]
        seconds.setdefault(key, []).append(event["dur"] / 1e6)
    lines = [(operator, 1, 1e3 * statistics.median(taken)) for (operator, _), taken in seconds.items()]
    frame = pd.DataFrame(lines, columns=["operator", "nodes", "ms"]).groupby("operator", as_index=False).sum()
    frame["share"] = frame["ms"] / frame["ms"].sum()
    return frame.sort_values("ms", ascending=False, ignore_index=True)


def node_events(path, batch, level, threads, calls):
    """The profiler's event of every node in every call after the warm-up."""
    inputs = random_inputs(checked(path), batch)
    with tempfile.TemporaryDirectory() as folder:
        options = session_options(level, threads)
        options.enable_profiling = True
        options.profile_file_prefix = str(Path(folder) / "profile")
        session = opened(path, options)
        feed = {node.name: tensor.numpy() for node, tensor in zip(session.get_inputs(), inputs, strict=True)}
        for _ in range(WARM_UP + calls):
            session.run(None, feed)
        events = json.loads(Path(session.end_profiling()).read_text(encoding="utf-8"))
    runs = sorted(event["ts"] for event in events if event["name"] == "model_run")
    return [
        event
        for event in events
        if event.get("cat") == "Node" and event["name"].endswith("_kernel_time") and event["ts"] >= runs[WARM_UP]
    ]


def as_written(path, *, level="none", threads=None):
    """A function from a batch to the output (both tensors) that runs the file as it is written, or up to `level`."""
    import torch

    checked(path)
    session = opened(path, session_options(level, threads))
    name = session.get_inputs()[0].name
    return lambda batch: torch.from_numpy(session.run(None, {name: batch.cpu().numpy()})[0])


def session_options(level="all", threads=None):
    """ONNX Runtime's settings for a level of `LEVELS`."""
    import onnxruntime

    if level not in LEVELS:
        raise LabError(f"There is no level {level!r}.", expected=" or ".join(LEVELS), found=str(level))
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, LEVELS[level])
    options.log_severity_level = 3
    options.intra_op_num_threads = threads or devices.threads()
    # Threads that go on spinning after a call would slow down what is timed next.
    options.add_session_config_entry("session.force_spinning_stop", "1")
    return options


def opened(path, options):
    """A session on the CPU."""
    import onnxruntime

    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
