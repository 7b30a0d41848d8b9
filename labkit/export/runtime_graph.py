"""Write the rewritten graph that ONNX Runtime really runs for a file."""

from functools import partial
from pathlib import Path

from labkit.export.gate import checked
from labkit.export.runtime import session
from labkit.export.write import write_checked


def runtime_graph(src: str | Path, dst: str | Path, level: str = "extended") -> Path:
    """Write the rewritten graph that ONNX Runtime runs for a file. Returns the path `dst`.

    src, dst  paths of the file and of the rewritten graph
    level     one of `runtime.LEVELS`: how far the graph is rewritten. A graph of level "all" is
              made for this machine's CPU: do not use it on another machine
    """
    model = checked(src)  # with its weights: their own files lie beside `src` and not beside `dst`
    return write_checked(partial(save_runtime_graph, model, level), dst, original=src)


def save_runtime_graph(model, level, path):
    """Let ONNX Runtime write its rewritten graph of a model to `path`. The result is not checked.

    model  a path or a ModelProto
    level  one of `runtime.LEVELS`
    """
    session(model, level, optimized_model_filepath=str(path))
