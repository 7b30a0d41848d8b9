"""Quantization after training: an fp32 ONNX file becomes one with Q/DQ nodes, on ranges observed on real data.

What     weights and activations are rounded to integers of 8 bits, with ranges fixed beforehand
When     convolutions and matrix products take the time, and the CPU or GPU multiplies integers faster than floats
Cost     some hundred real examples and one run on them; some answers change: count them before you use the file
Not when channels of an activation reach unequally far, as in transformers and after depthwise convolutions: see
         smoothing and partial quantization; GRU, LSTM and ConvTranspose always stay in float
Source   Jacob et al. 2017, arXiv:1712.05877; ONNX Runtime's quantizer. Which settings each engine accepts was tried,
         not read

One network needs a file for each engine, because they want different integers:

tensorrt     activations and weights int8 and symmetric, weights per channel, only the heavy operators, their outputs
             and biases left in float
onnxruntime  on a CPU: activations uint8 with a zero point, weights of 7 bits per channel, and what stands between the
             heavy operators too
openvino     on a CPU: the same numbers, but only what enters the heavy operators, for OpenVINO fuses the rest itself

7 bits, because a CPU without VNNI instructions adds pairs of products in int16, which weights of 8 bits overflow.
"""

import copy
import tempfile
from pathlib import Path
from typing import Any

import onnx

from labkit import device as devices
from labkit.errors import LabError, require_known
from labkit.export import checked, precision_of, runtime_graph
from labkit.export.operators import QUANTIZED
from labkit.export.runtime import explained, notes, written
from labkit.quantize.observed import observe, ranges
from labkit.quantize.outliers import FLOAT

BETWEEN = ("Relu", "Clip", "Add", "MaxPool", "AveragePool", "GlobalAveragePool", "Reshape", "Transpose")
# ONNX Runtime's integer softmax overflows where its grid is much finer than 1/255, as over many tokens alike: an
# attention lost 18 dB. The grid of all shares, which costs 1 dB there, cannot overflow.
SHARES = (0.0, 1.0)
RECIPES = ("tensorrt", "onnxruntime", "openvino")


def static(src: str | Path, dst: str | Path, data: Any, **settings: Any) -> Path:
    """Quantize an ONNX file to INT8. Returns the path `dst`.

    data      an `ImageSet` of training images, or a `Calibration`; or what `observe` returned, to quantize one network
              several times without running it again
    settings  of `in_int8`
    What the file and each engine keep of the answers, `labkit.engines.fidelity.quantized` says: ask it before use.
    Raises    LabError: no data, too little, or random data; an unknown recipe, method or node
    """
    model = prepared(src)
    seen = observe(model, data)
    with explained(src, "quantized"):
        quantized = in_int8(model, seen, **settings)
    return written(quantized, dst)


def in_int8(model, seen, *, recipe="tensorrt", method="minmax", in_float=(), weight_bits="recipe"):
    """A copy of a `prepared` ModelProto in INT8, in memory.

    seen         what `observe` returned
    recipe       one of `RECIPES`: which engine shall run it
    method       "minmax", "percentile" or "entropy": how the observed ranges are clipped
    in_float     names of nodes to leave in float
    weight_bits  7, 8, "auto" (8 where this CPU adds their products without overflow), or "recipe": as that says
    """

    layers_of(model, QUANTIZED, in_float)
    settings = _recipe_settings(recipe, model)
    require_known(bits := str(weight_bits), ("recipe", "auto", "7", "8"), "number of bits per weight")
    if bits != "recipe":
        bits = str(7 + devices.adds_int8()) if bits == "auto" else bits
        settings["reduce_range"] = bits == "7"
    in_float = {*in_float, *left_in_float(model)}
    found = ranges(seen, method)
    if recipe == "onnxruntime":
        found |= {node.output[0]: SHARES for node in model.graph.node if node.op_type == "Softmax"}
    quantized = _insert(copy.deepcopy(model), found, settings, in_float)
    bits = "" if bits == "recipe" else f", weights of {bits} bits"
    about = {"quantized": f"int8, recipe {recipe}, ranges by {method}{bits}", "calibrated": seen.note}
    onnx.helper.set_model_props(quantized, notes(quantized) | about)
    return quantized


def layers_of(model, kinds, in_float=(), *, stored=False):
    """Names of the nodes of some kinds, or those of them with stored weights.

    Raises  LabError: there are none; there are no nodes of the names `in_float`
    """
    weights, nodes = {tensor.name for tensor in model.graph.initializer}, model.graph.node
    found = [node.name for node in nodes if node.op_type in kinds and (not stored or node.input[1] in weights)]
    if not found:
        expected = " or ".join(kinds) + " with stored weights" * stored
        here = ", ".join(sorted({node.op_type for node in nodes}))
        raise LabError("There is nothing to quantize.", expected=expected, found=here, fix="use --precision fp16")
    unknown = set(in_float) - {node.name for node in nodes}
    if unknown:
        what = "There are no such nodes to leave in float."
        raise LabError(what, expected=", ".join(found), found=", ".join(sorted(unknown)))
    return found


def left_in_float(model):
    """Names of the nodes that stay in float though others of their kind do not: products of outliers."""
    return [node.name for node in model.graph.node if FLOAT in node.name]


def _recipe_settings(recipe, model):
    """The settings of ONNX Runtime's quantizer for a recipe."""
    from onnxruntime.quantization import QuantType

    require_known(recipe, RECIPES, "recipe")
    signed = recipe == "tensorrt"  # it refuses unsigned or shifted integers
    options = {"WeightSymmetric": True, "ActivationSymmetric": signed}
    settings = {"per_channel": True, "weight_qType": QuantType.QInt8, "nodes_to_quantize": [], "extra_options": options}
    settings |= {"activation_qType": QuantType.QInt8 if signed else QuantType.QUInt8, "reduce_range": not signed}
    settings["op_types_to_quantize"] = list(QUANTIZED)
    if recipe == "onnxruntime":
        kinds = {node.op_type for node in model.graph.node}
        # the residual sums of a transformer have outliers: eight bits for them cost its accuracy
        without = ("Add",) if "LayerNormalization" in kinds else ()
        settings["op_types_to_quantize"] += [kind for kind in BETWEEN if kind not in without]
    else:
        # TensorRT refuses int32 biases; quantized outputs cost accuracy for nothing
        options |= {"QuantizeBias": False, "OpTypesToExcludeOutputQuantization": list(QUANTIZED)}
    return settings


def prepared(src: str | Path | onnx.ModelProto) -> onnx.ModelProto:
    """The model as the quantizer wants it: shapes inferred, batch norm folded into the convolution before it.

    Raises  LabError: the file is in smaller numbers already
    """

    model = require_fp32(src)
    with tempfile.TemporaryDirectory() as folder:
        model = onnx.load(runtime_graph(model, Path(folder) / "basic.onnx", "basic"))
    model = onnx.shape_inference.infer_shapes(model)
    used = {node.domain for node in model.graph.node}
    imports = [opset for opset in model.opset_import if opset.domain in used]  # it declares many more than it uses
    del model.opset_import[:]
    model.opset_import.extend(imports)
    return model


def require_fp32(src, *, also=()):
    """The ModelProto in a file; one in another precision than fp32, or those in `also`, is refused."""
    model = checked(src)
    held = precision_of(model)
    if held not in ("fp32", *also):
        raise LabError(
            f"{Path(src).name} is in {held.upper()} already: what its rounding lost is lost.",
            expected="a file in FP32" + "".join(f" or {each.upper()}" for each in also),
            found=held.upper(),
            fix="take the file that it was made from",
        )
    return model


def _insert(model, wanted, settings, in_float):
    """The model with Q/DQ nodes around what the recipe quantizes. Changes `model`."""
    import numpy as np
    from onnxruntime.quantization import CalibrationMethod, QDQQuantizer, TensorsData

    found = {name: (np.float32(low), np.float32(high)) for name, (low, high) in wanted.items()}
    data = TensorsData(CalibrationMethod.MinMax, found)
    quantizer = QDQQuantizer(model, tensors_range=data, nodes_to_exclude=list(in_float), **settings)
    quantizer.quantize_model()
    quantizer.model.topological_sort()
    return quantizer.model.model
