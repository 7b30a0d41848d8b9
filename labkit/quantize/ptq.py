"""Quantization after training: an fp32 ONNX file gets Q/DQ nodes, with ranges from real data.

What     weights and activations are rounded to integers of 8 bits, with ranges fixed beforehand
When     convolutions and matrix products take the time, and the CPU or GPU multiplies integers
         faster than floats
Cost     some hundred real examples and one run on them; some answers change: count them before you
         use the file
Not when channels of an activation reach unequally far, as in transformers and after depthwise
         convolutions: see smoothing and partial quantization; GRU, LSTM and ConvTranspose always
         stay in float
Source   Jacob et al. 2017, arXiv:1712.05877; ONNX Runtime's quantizer. Which settings each engine
         accepts was tried, not read

One network needs a file for each engine, because the engines want different integers:

tensorrt     activations and weights int8 and symmetric, weights per channel; only the inputs of
             the heavy operators, while their outputs and biases stay in float
onnxruntime  on a CPU: activations uint8 with a zero point, weights of 7 bits per channel; also the
             light operators between the heavy ones
openvino     on a CPU: the same numbers as onnxruntime, but only for the inputs of the heavy
             operators, because OpenVINO fuses the rest itself

Weights have 7 bits because a CPU without VNNI instructions adds pairs of products in int16, which
weights of 8 bits overflow.
"""

import copy
from pathlib import Path
from typing import Any

import onnx
import onnx.version_converter

from labkit import device as devices
from labkit.errors import LabError, require_known
from labkit.export.operators import QUANTIZED
from labkit.export.runtime import explained, notes
from labkit.export.write import write_model
from labkit.quantize.activation_ranges import observe, ranges
from labkit.quantize.outliers import FLOAT
from labkit.quantize.preparation import prepared_for_quantizer

LIGHT = (
    "Relu",
    "Clip",
    "Add",
    "MaxPool",
    "AveragePool",
    "GlobalAveragePool",
    "Reshape",
    "Transpose",
)
# ONNX Runtime's integer softmax overflows if its grid is much finer than 1/255, as over many
# similar tokens: an attention lost 18 dB. The grid of 0 to 1 costs 1 dB there and cannot overflow.
SOFTMAX_RANGE = (0.0, 1.0)
RECIPES = ("tensorrt", "onnxruntime", "openvino")


def static(src: str | Path, dst: str | Path, data: Any, **settings: Any) -> Path:
    """Quantize an ONNX file to INT8 and write it to `dst`. Returns the path `dst`.

    data      an `ImageSet` of training images, or a `Calibration`. Or the result of `observe`: then
              the network is not run, which saves time when it is quantized several times
    settings  keyword arguments of `in_int8`
    Raises    LabError: no data, too little, or random data; an unknown recipe, method or node

    Before you use the file, call `labkit.engines.fidelity.quantized`: it compares the file's
    answers with those in fp32.
    """
    model = prepared_for_quantizer(src)
    histograms = observe(model, data)
    with explained(src, "quantized"):
        quantized = in_int8(model, histograms, **settings)
    return write_model(quantized, dst)


def in_int8(
    model, histograms, *, recipe="tensorrt", method="minmax", in_float=(), weight_bits="recipe"
):
    """Return an INT8 copy of a model.

    model        a ModelProto that `prepared_for_quantizer` returned
    histograms   result of `observe`
    recipe       the engine that will run the copy, one of `RECIPES`
    method       "minmax", "percentile" or "entropy": how the observed ranges are clipped
    in_float     names of nodes to leave in float
    weight_bits  7, 8, "auto" (8 if this CPU adds INT8 products without overflow, else 7), or
                 "recipe" (the bits that the recipe sets)
    Raises       LabError: nothing to quantize; an unknown recipe, method or node
    """
    layers_of(model, QUANTIZED, in_float)  # raises a LabError if there are none
    settings = _recipe_settings(recipe, model)

    # The number of bits per weight, if it is not the recipe's.
    bits = str(weight_bits)
    require_known(bits, ("recipe", "auto", "7", "8"), "number of bits per weight")
    if bits == "auto":
        bits = "7"
        if devices.adds_int8():
            bits = "8"
    if bits != "recipe":
        settings["reduce_range"] = bits == "7"

    # The range of each activation.
    tensor_ranges = ranges(histograms, method)
    if recipe == "onnxruntime":
        for node in model.graph.node:
            if node.op_type == "Softmax":
                tensor_ranges[node.output[0]] = SOFTMAX_RANGE

    excluded = [*in_float, *outlier_products(model)]
    quantized = _insert_qdq(copy.deepcopy(model), tensor_ranges, settings, excluded)
    # No layer was to stay in float, and still none is in integers: its weights are doubles, say.
    in_integers = any(node.op_type == "QuantizeLinear" for node in quantized.graph.node)
    if not in_integers and not in_float:
        raise LabError(
            "Nothing of the network was quantized.",
            expected="convolutions or matrix products of float32",
            found=_weight_types(model),
            fix="export the network in float32 (network.float())",
        )

    # The file says how it was made.
    description = f"int8, recipe {recipe}, ranges by {method}"
    if bits != "recipe":
        description += f", weights of {bits} bits"
    metadata = notes(quantized)
    metadata["quantized"] = description
    metadata["calibrated"] = histograms.description
    onnx.helper.set_model_props(quantized, metadata)
    return quantized


def _weight_types(model):
    """Return the types of the stored tensors in words, such as "weights of DOUBLE"."""
    kinds = {onnx.TensorProto.DataType.Name(tensor.data_type) for tensor in model.graph.initializer}
    return f"weights of {', '.join(sorted(kinds)) or 'no type'}"


def layers_of(model, op_types, in_float=(), *, stored=False):
    """Return the names of the nodes of some operator types, in the order of the graph.

    op_types  names of the operator types, such as "Conv"
    in_float  names of nodes that shall stay in float. They are only checked here: each must exist
    stored    True: return only nodes whose second input is stored in the file
    Raises    LabError: there is no node to return, or a node named in `in_float` does not exist
    """
    weight_names = {tensor.name for tensor in model.graph.initializer}
    layers = []
    for node in model.graph.node:
        if node.op_type in op_types and (not stored or node.input[1] in weight_names):
            layers.append(node.name)
    if not layers:
        expected = " or ".join(op_types)
        if stored:
            expected += " with stored weights"
        raise LabError(
            "There is nothing to quantize.",
            expected=expected,
            found=", ".join(sorted({node.op_type for node in model.graph.node})),
            fix="use --precision fp16",
        )
    unknown = set(in_float) - {node.name for node in model.graph.node}
    if unknown:
        raise LabError(
            "There are no such nodes to leave in float.",
            expected=", ".join(layers),
            found=", ".join(sorted(unknown)),
        )
    return layers


def outlier_products(model):
    """Return the names of the nodes that `outliers_apart` added: they must stay in float."""
    return [node.name for node in model.graph.node if FLOAT in node.name]


def _recipe_settings(recipe, model):
    """Return the keyword arguments of ONNX Runtime's `QDQQuantizer` for a recipe.

    recipe  one of `RECIPES`
    model   the ModelProto: in a transformer some additions stay in float
    """
    from onnxruntime.quantization import QuantType

    require_known(recipe, RECIPES, "recipe")
    settings = {
        "per_channel": True,
        "weight_qType": QuantType.QInt8,
        "nodes_to_quantize": [],  # all of the types below
        "op_types_to_quantize": list(QUANTIZED),
    }
    options = {"WeightSymmetric": True}

    # TensorRT refuses unsigned or shifted integers.
    if recipe == "tensorrt":
        settings["activation_qType"] = QuantType.QInt8
        settings["reduce_range"] = False
        options["ActivationSymmetric"] = True
    else:
        settings["activation_qType"] = QuantType.QUInt8
        settings["reduce_range"] = True  # weights of 7 bits
        options["ActivationSymmetric"] = False

    if recipe == "onnxruntime":
        light = list(LIGHT)
        # The residual sums of a transformer have outliers: eight bits for them cost its accuracy.
        if any(node.op_type == "LayerNormalization" for node in model.graph.node):
            light.remove("Add")
        settings["op_types_to_quantize"] += light
    else:
        options["QuantizeBias"] = False  # TensorRT refuses int32 biases
        # integers in these outputs would cost accuracy and gain nothing
        options["OpTypesToExcludeOutputQuantization"] = list(QUANTIZED)
    settings["extra_options"] = options
    return settings


def _insert_qdq(model, tensor_ranges, settings, excluded):
    """Insert Q/DQ nodes at the tensors that the recipe quantizes. Returns the changed model.

    tensor_ranges  {tensor name: (low, high)}
    settings       keyword arguments of the quantizer, from `_recipe_settings`
    excluded       names of nodes to leave in float
    """
    import numpy as np
    from onnxruntime.quantization import CalibrationMethod, QDQQuantizer, TensorsData

    float32_ranges = {
        name: (np.float32(low), np.float32(high)) for name, (low, high) in tensor_ranges.items()
    }
    calibration = TensorsData(CalibrationMethod.MinMax, float32_ranges)
    quantizer = QDQQuantizer(
        model, tensors_range=calibration, nodes_to_exclude=excluded, **settings
    )
    quantizer.quantize_model()
    quantizer.model.topological_sort()
    return quantizer.model.model
