"""Which layers pay for INT8 with accuracy? Quantize one at a time, or all but one, and look at the answers.

One layer alone shows how much noise it brings; all but one shows what keeping it in float would save. The two disagree
where errors of several layers add up or cancel.
"""

import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from labkit.errors import LabError
from labkit.quantize.calibration import Calibration, observe
from labkit.quantize.numbers import sqnr_db
from labkit.quantize.ptq import HEAVY, prepared, static

WAYS = ("only", "all but")


@dataclass(frozen=True)
class Layer:
    """A node that the recipes quantize.

    name     of the node in the ONNX graph
    kind     its operator
    shape    of its weights; () for a product of two activations
    weights  how many
    """

    name: str
    kind: str
    shape: tuple
    weights: int


def layers(model):
    """The heavy nodes of an ONNX model (a path or a ModelProto) in the order they run: a list of `Layer`."""
    model = prepared(model) if isinstance(model, (str, Path)) else model
    shapes = {tensor.name: tuple(tensor.dims) for tensor in model.graph.initializer}
    return [
        Layer(node.name, node.op_type, shapes.get(node.input[1], ()), int(np.prod(shapes.get(node.input[1], (0,)))))
        for node in model.graph.node
        if node.op_type in HEAVY
    ]


def sensitivity(path, data, images, *, way="only", recipe="tensorrt", method="minmax"):
    """How much quantizing each layer disturbs the answers: a DataFrame, one line a layer in the order they run.

    path    an fp32 ONNX file
    data    what to calibrate with: an `ImageSet`, a `Calibration`, or what `observe` returned
    images  (N, C, H, W) floats to compare the answers on; real ones, not those of the final test
    way     "only": this layer in INT8, all others in float; "all but": this one in float, all others in INT8
    returns columns layer, kind, weights, sqnr_db (of the logits against fp32) and same_answer (0 to 1)
    """
    import pandas as pd

    if way not in WAYS:
        raise LabError(f"There is no way {way!r}.", expected=" or ".join(WAYS), found=way, fix="choose one")
    model = prepared(path)
    seen = data if isinstance(data, dict) else observe(model, Calibration.of(data))
    found, exact = layers(model), logits(path, images)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for layer in found:
            others = [other.name for other in found if other.name != layer.name]
            keep = others if way == "only" else [layer.name]
            file = static(path, Path(folder) / "q.onnx", seen, recipe=recipe, method=method, keep=keep)
            answers = logits(file, images)
            same = float((answers.argmax(1) == exact.argmax(1)).mean())
            rows.append((layer.name, layer.kind, layer.weights, sqnr_db(exact, answers), same))
    return pd.DataFrame(rows, columns=["layer", "kind", "weights", "sqnr_db", "same_answer"])


def logits(path, images, *, batch=500, exactly=True):
    """(N, classes) float32: the answers of an ONNX file.

    exactly  let Q/DQ nodes round and nothing else: without the integer kernels of this CPU, which may saturate
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    if exactly:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    name, images = session.get_inputs()[0].name, np.asarray(images)
    parts = [session.run(None, {name: images[at : at + batch]})[0] for at in range(0, len(images), batch)]
    return np.concatenate(parts)
