"""Quantization after training: an fp32 ONNX file becomes one with Q/DQ nodes, on ranges observed on real data.

One network needs two files, because the engines want different integers:

tensorrt     for TensorRT and OpenVINO: activations and weights int8 and symmetric, weights per channel, only the heavy
             operators, their outputs and biases left in float
onnxruntime  for ONNX Runtime on a CPU: activations uint8 with a zero point, weights of 7 bits per channel, and what
             stands between the heavy operators too. On a CPU without VNNI instructions OpenVINO wants it as well: it
             adds pairs of products in int16, which weights of 8 bits overflow (look at `labkit doctor`)

Source of both: ONNX Runtime's quantizer; which settings each engine accepts was tried, not read.
"""

import tempfile
from pathlib import Path

from labkit.errors import LabError
from labkit.export import checked
from labkit.files import atomic
from labkit.quantize.calibration import Calibration, observe, ranges

HEAVY = ("Conv", "MatMul", "Gemm")  # where the arithmetic is
BETWEEN = ("Relu", "Clip", "Add", "MaxPool", "AveragePool", "GlobalAveragePool", "Reshape", "Transpose")
RECIPES = ("tensorrt", "onnxruntime")


def static(src, dst, data, *, recipe="tensorrt", method="minmax", keep=()):
    """Quantize an ONNX file to INT8. Returns the path `dst`.

    data    an `ImageSet` of training images, or a `Calibration`; or what `observe` returned, to quantize one network
            several times without running it again
    recipe  one of `RECIPES`: which engine shall run it
    method  "minmax", "percentile" or "entropy": how the observed ranges are clipped
    keep    names of nodes to leave in float
    Raises  LabError: no data, too little, or random data; an unknown recipe, method or node
    """
    import onnx

    model = prepared(src)
    settings = recipe_settings(recipe, model)
    unknown = set(keep) - {node.name for node in model.graph.node}
    if unknown:
        raise LabError(
            "There are no such nodes to keep in float.",
            found=", ".join(sorted(unknown)),
            fix="see labkit.quantize.layers",
        )
    seen = data if isinstance(data, dict) else observe(model, Calibration.of(data))
    quantized = insert(model, ranges(seen, method), settings, keep)
    onnx.helper.set_model_props(quantized, {"quantized": f"int8, recipe {recipe}, ranges by {method}"})
    with atomic(dst) as temporary:
        onnx.save(quantized, temporary)
    return Path(dst)


def recipe_settings(recipe, model):
    """What ONNX Runtime's quantizer needs to know."""
    from onnxruntime.quantization import QuantType

    kinds = {node.op_type for node in model.graph.node}
    # the residual sums of a transformer have outliers: eight bits for them cost its accuracy
    between = [kind for kind in BETWEEN if not (kind == "Add" and "LayerNormalization" in kinds)]

    per_channel = {"per_channel": True, "weight_qType": QuantType.QInt8, "nodes_to_quantize": []}
    common = {"WeightSymmetric": True}
    recipes = {
        # TensorRT refuses unsigned or shifted integers and int32 biases; quantized outputs cost accuracy for nothing
        "tensorrt": {
            "activation_qType": QuantType.QInt8,
            "reduce_range": False,
            "op_types_to_quantize": list(HEAVY),
            "extra_options": {
                "ActivationSymmetric": True,
                "QuantizeBias": False,
                "OpTypesToExcludeOutputQuantization": list(HEAVY),
            },
        },
        # weights of 7 bits: without VNNI instructions the CPU adds pairs of products in int16, which 8 bits overflow
        "onnxruntime": {
            "activation_qType": QuantType.QUInt8,
            "reduce_range": True,
            "op_types_to_quantize": [*HEAVY, *between],
            "extra_options": {"ActivationSymmetric": False},
        },
    }
    if recipe not in recipes:
        raise LabError(f"There is no recipe {recipe!r}.", expected=" or ".join(RECIPES), found=recipe, fix="choose one")
    chosen = recipes[recipe]
    return {**per_channel, **chosen, "extra_options": {**common, **chosen["extra_options"]}}


def prepared(src):
    """The model as the quantizer wants it: shapes inferred, batch norm folded into the convolution before it."""
    import onnx
    from onnxruntime.quantization import quant_pre_process

    checked(src)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "prepared.onnx"
        quant_pre_process(str(src), str(path), skip_symbolic_shape=True)
        model = onnx.load(path)
    used = {node.domain for node in model.graph.node}
    imports = [opset for opset in model.opset_import if opset.domain in used]  # it declares many more than it uses
    del model.opset_import[:]
    model.opset_import.extend(imports)
    return model


def insert(model, wanted, settings, keep):
    """The model with Q/DQ nodes around what the recipe quantizes. Changes `model`."""
    import numpy as np
    from onnxruntime.quantization import CalibrationMethod, QDQQuantizer, TensorsData

    found = {name: (np.float32(low), np.float32(high)) for name, (low, high) in wanted.items()}
    data = TensorsData(CalibrationMethod.MinMax, found)
    quantizer = QDQQuantizer(model, tensors_range=data, nodes_to_exclude=list(keep), **settings)
    quantizer.quantize_model()
    quantizer.model.topological_sort()
    return quantizer.model.model
