"""Prepare a float32 file for quantization: check it, simplify it, renew its operators."""

import tempfile
from pathlib import Path

import onnx
import onnx.version_converter

from labkit.errors import LabError
from labkit.export import checked, precision_of
from labkit.export.runtime_graph import save_runtime_graph

FIRST_OPSET = 13


def prepared_for_quantizer(src: str | Path | onnx.ModelProto) -> onnx.ModelProto:
    """Return a ModelProto in the form that ONNX Runtime's quantizer needs.

    Shapes are inferred, each batch norm is folded into the convolution before it, and the operator
    set is 13 or later.

    src     a path or a ModelProto in fp32
    Raises  LabError: the file is quantized already, or too old to be converted
    """
    model = _with_new_operators(require_fp32(src))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "basic.onnx"
        save_runtime_graph(model, "basic", path)
        model = onnx.load(path)
    model = onnx.shape_inference.infer_shapes(model)

    # ONNX Runtime declares many more operator sets than the graph uses.
    used_domains = {node.domain for node in model.graph.node}
    used_opsets = [opset for opset in model.opset_import if opset.domain in used_domains]
    del model.opset_import[:]
    model.opset_import.extend(used_opsets)
    return model


def _with_new_operators(model):
    """Return the model in operator set 13 or later.

    Only from this set on, a Q/DQ node may have a scale for each channel.
    """
    opset = next(
        (opset.version for opset in model.opset_import if opset.domain in ("", "ai.onnx")),
        FIRST_OPSET,
    )
    if opset >= FIRST_OPSET:
        return model
    try:
        return onnx.version_converter.convert_version(model, FIRST_OPSET)
    except Exception as error:  # the converter knows only some operators
        raise LabError(
            "This file is too old to be quantized.",
            expected=f"operator set {FIRST_OPSET} or later",
            found=f"operator set {opset}, and {' '.join(str(error).split())[:200]}",
            fix="export the model anew",
        ) from error


def require_fp32(src, *, also=()):
    """Load an ONNX file. Returns its ModelProto.

    also    further precisions that are accepted
    Raises  LabError: the precision of the file is neither fp32 nor one of `also`
    """
    model = checked(src)
    precision = precision_of(model)
    accepted = ("fp32", *also)
    if precision not in accepted:
        raise LabError(
            f"{Path(src).name} is in {precision.upper()} already: what its rounding lost is lost.",
            expected="a file in " + " or ".join(name.upper() for name in accepted),
            found=precision.upper(),
            fix="take the file that it was made from",
        )
    return model
