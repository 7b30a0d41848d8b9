"""Which layers lose accuracy in INT8? Quantize one at a time, or all but one, and look at the answers.

One layer alone shows how much noise it brings; all but one shows what keeping it in float would save. The two disagree
where errors of several layers add up or cancel.
"""

import tempfile
from pathlib import Path

import numpy as np

from labkit.export import session
from labkit.export.operators import QUANTIZED
from labkit.export.runtime import answers
from labkit.quantize.calibration import Calibration, observe
from labkit.quantize.numbers import sqnr_db
from labkit.quantize.ptq import prepared, static


def sensitivity(path, data, images, *, way="only", recipe="tensorrt", method="minmax"):
    """How much quantizing each heavy layer disturbs the answers: a DataFrame, one line per layer in the order they run.

    path    an fp32 ONNX file
    data    what to calibrate with: an `ImageSet`, a `Calibration`, or what `observe` returned
    images  (N, C, H, W) floats to compare the answers on; real ones, not those of the final test
    way     "only": this layer in INT8, all others in float; "all but": this one in float, all others in INT8
    returns columns layer, kind, weights (how many, 0 for a product of two activations), sqnr_db (of the logits against
            fp32) and same_answer (0 to 1)
    """
    import pandas as pd

    model = prepared(path)
    seen = data if isinstance(data, dict) else observe(model, Calibration.of(data))
    sizes = {tensor.name: int(np.prod(tensor.dims)) for tensor in model.graph.initializer}
    layers = [node for node in model.graph.node if node.op_type in QUANTIZED]
    exact, rows = logits(path, images), []
    with tempfile.TemporaryDirectory() as folder:
        for layer in layers:
            others = [other.name for other in layers if other.name != layer.name]
            keep = others if way == "only" else [layer.name]
            file = static(path, Path(folder) / "q.onnx", seen, recipe=recipe, method=method, keep=keep)
            found = logits(file, images)
            same = float((found.argmax(1) == exact.argmax(1)).mean())
            rows.append((layer.name, layer.op_type, sizes.get(layer.input[1], 0), sqnr_db(exact, found), same))
    return pd.DataFrame(rows, columns=["layer", "kind", "weights", "sqnr_db", "same_answer"])


def logits(path, images, *, batch=500):
    """(N, classes) float32: the answers of an ONNX file whose Q/DQ nodes round, and nothing else: without the integer
    kernels of this CPU, which may saturate."""
    opened, images = session(path, "none"), np.asarray(images)
    return np.concatenate([answers(opened, images[at : at + batch])[0] for at in range(0, len(images), batch)])
