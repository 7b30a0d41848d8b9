"""Dynamic quantization: INT8 with ranges found anew in each call.

What     weights are stored as integers, one grid per output channel; what enters a matrix product is put on a grid of
         0 to 255 when it arrives, one for the whole tensor
When     no data is at hand, or ranges differ much from one input to the next, as those of a transformer do
Cost     each call looks for the ranges; an answer depends a little on what else is in its batch
Not when the network consists of convolutions: they stay float, for ONNX Runtime is no faster with them this way
Source   ONNX Runtime's quantize_dynamic; Zafrir et al. 2019, arXiv:1910.06188
"""

from pathlib import Path

from labkit.errors import LabError
from labkit.export.runtime import explained
from labkit.files import atomic
from labkit.quantize._quiet import quiet
from labkit.quantize.ptq import left_in_float, prepared

DYNAMIC = ("MatMul", "Gemm")


def dynamic(src, dst, *, keep=(), bits=7):
    """Write a copy of an ONNX file whose products with stored weights are computed in integers: the path `dst`.

    keep  names of nodes to leave in float
    bits  of the weights: 7, or 8 on a CPU with VNNI. Others add two products in 16 bits, which 8 bits overflow
    Raises  LabError: an unknown node; nothing to quantize
    """
    import onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic

    model = prepared(src)
    stored = {tensor.name for tensor in model.graph.initializer}
    known = [node.name for node in model.graph.node if node.op_type in DYNAMIC and node.input[1] in stored]
    if not known or (unknown := set(keep) - set(known)):
        what = "There are no such nodes to keep in float." if known else "There is nothing to quantize."
        found = ", ".join(sorted(unknown)) if known else ", ".join({node.op_type for node in model.graph.node})
        raise LabError(what, expected=", ".join(known) or " or ".join(DYNAMIC), found=found)
    with explained(Path(src).name, "quantized"), atomic(dst) as temporary, quiet():
        settings = {"per_channel": True, "reduce_range": bits == 7, "weight_type": QuantType.QInt8}
        left = {*keep, *left_in_float(model)}
        # it turns a Gemm into a MatMul of another name, and stumbles over the shape of the old weights
        wanted = [each for name in known if name not in left for each in (name, f"{name}_MatMul")]
        del model.graph.value_info[:]
        quantize_dynamic(model, temporary, nodes_to_quantize=wanted, **settings)
        made = onnx.load(temporary)
        onnx.helper.set_model_props(made, {"quantized": f"int8, ranges found in each call, weights of {bits} bits"})
        onnx.save(made, temporary)
    return Path(dst)
