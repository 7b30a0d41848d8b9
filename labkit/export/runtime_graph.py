"""Write the graph that ONNX Runtime makes of a file before running it."""

from functools import partial
from pathlib import Path

from labkit.export.gate import checked
from labkit.export.runtime import session
from labkit.export.write import write_checked


def runtime_graph(src: str | Path, dst: str | Path, level: str = "extended") -> Path:
    """Write the graph that ONNX Runtime makes of a file before running it. Returns the path `dst`.

    level  one of `runtime.LEVELS`; "all" is made for this machine's CPU and must not travel to
           another
    """
    model = checked(src)  # with its weights: their own files lie beside `src` and not beside `dst`
    return write_checked(partial(save_runtime_graph, model, level), dst, original=src)


def save_runtime_graph(model, level, path):
    """Let ONNX Runtime write its graph of a model to `path`; the written file is not checked."""
    session(model, level, optimized_model_filepath=str(path))
