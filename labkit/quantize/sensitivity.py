"""Which layers lose accuracy in INT8? Quantize one at a time, and look at the answers.

This shows how much noise each layer brings alone; several layers together may bring more or less
than the sum.
"""

import math
from typing import Any

import numpy as np

from labkit.export.operators import HEAVY, QUANTIZED, RECURRENT
from labkit.export.runtime import answers, session_as_written
from labkit.quantize.calibration import Calibration
from labkit.quantize.integer_grid import sqnr_db
from labkit.quantize.ptq import in_int8, outlier_products

BATCH = 500  # examples that are run at once


def sensitivity(model, histograms, images, **settings):
    """Measure how much noise each heavy layer adds to the answers when it alone is in INT8.

    A heavy layer is a convolution or a matrix product.

    model       a ModelProto that `prepared_for_quantizer` returned
    histograms  result of `observe` for the model
    images      (N, C, H, W) floats on which the answers are compared, or other `items` of `logits`;
                not the images of the final test
    settings    keyword arguments of `in_int8`: recipe, method, weight_bits
    returns     a DataFrame with one row per layer, in the order of the graph. Columns: layer
                (name), kind (operator), share_of_work (share of the network's multiply-adds),
                sqnr_db (SQNR of the first output against fp32)
    """
    import pandas as pd

    left_in_float = outlier_products(model)
    layers = [
        node
        for node in model.graph.node
        if node.op_type in QUANTIZED and node.name not in left_in_float
    ]
    work = multiply_adds_by_node(model, histograms)
    exact = logits(model, images)
    rows = []
    for layer in layers:
        in_float = [node.name for node in layers if node.name != layer.name]
        quantized = logits(in_int8(model, histograms, in_float=in_float, **settings), images)
        share = work[layer.name] / sum(work.values())
        rows.append((layer.name, layer.op_type, share, sqnr_db(exact, quantized)))
    return pd.DataFrame(rows, columns=["layer", "kind", "share_of_work", "sqnr_db"])


def multiply_adds_by_node(model, histograms):
    """Count the multiply-adds of each heavy node for the last observed batch: {node: count}.

    Heavy nodes are those of the operators in `export.operators.HEAVY`, an Einsum excepted. Some of
    them, such as a GRU, always stay in float; they are counted, too.

    model       a ModelProto
    histograms  result of `observe` for the model
    """
    shapes = {tensor.name: tuple(tensor.dims) for tensor in model.graph.initializer}
    shapes |= {name: histogram.shape for name, histogram in histograms.items()}
    heavy = [
        node for node in model.graph.node if node.op_type in HEAVY and node.op_type != "Einsum"
    ]
    return {node.name: _multiply_adds_of(node, shapes) for node in heavy}


def _multiply_adds_of(node, shapes):
    """Return the multiply-adds of a node.

    shapes  {name of a tensor: its shape}
    """
    first, second = (shapes[name] for name in node.input[:2])
    # in each step of each row, all weights: those of the input and those of the state
    if node.op_type in RECURRENT:
        return math.prod(first[:2]) * (math.prod(second) + math.prod(shapes[node.input[2]]))
    # each number that enters is spread by the weights of its channel
    if node.op_type == "ConvTranspose":
        return math.prod(first) * math.prod(second[1:])
    # else the numbers that come out, times the terms of the sum that makes one of them
    terms = math.prod(second[1:]) if node.op_type == "Conv" else first[-1]
    return math.prod(shapes[node.output[0]]) * terms


def logits(path: Any, items: Any) -> np.ndarray:
    """Return the first output of an ONNX file for many inputs, (N, ...) float32.

    path, items  as in `all_outputs`
    """
    return next(iter(all_outputs(path, items).values()))


def all_outputs(path, items):
    """Return the outputs of an ONNX file for many inputs: {name: (N, ...) float32}.

    The file is run exactly as it is written: numbers are rounded only at its Q/DQ nodes and where
    it has float16. All products are computed in float. So the answers do not depend on integer
    kernels of this CPU, which may overflow.

    path   a file, or a ModelProto
    items  an array (N, ...) for a network of one input, a `Calibration`, or a list of batches
    """
    opened = session_as_written(path)
    if isinstance(items, Calibration):
        batches = items.batches
    elif isinstance(items, list):
        batches = items
    else:
        items = np.asarray(items)
        batches = (items[first : first + BATCH] for first in range(0, len(items), BATCH))
    names = [value.name for value in opened.get_outputs()]
    arrays_by_batch = [answers(opened, batch) for batch in batches]
    outputs = {}
    for name, arrays in zip(names, zip(*arrays_by_batch, strict=True), strict=True):
        outputs[name] = np.concatenate(arrays)
    return outputs
