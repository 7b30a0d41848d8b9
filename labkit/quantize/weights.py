"""Weight-only quantization: weights in 8 or 4 bits, with a grid for each group; everything is computed in float.

What     each run of `block` weights of one output shares a scale; the kernel turns them back into floats as it goes
When     activations have outliers that no grid bears; or loading the weights is what takes the time, as in large
         language models at small batches
Cost     the products stay float, so many items at once gain no time, and may lose some
Not when the CPU multiplies integers and the activations bear it: `dynamic` and `static` are faster then
Source   ONNX Runtime's MatMulNBits, rounding to nearest; groups: Yao et al. 2022, arXiv:2206.01861
"""

from pathlib import Path

from labkit.errors import LabError
from labkit.export.runtime import explained, written
from labkit.quantize._quiet import quiet
from labkit.quantize.ptq import prepared


def weight_only(src, dst, *, bits=8, block=32):
    """Write a copy of an ONNX file whose matrix products have stored weights of few bits: the path `dst`.

    bits   8 or 4
    block  weights that share a scale: 16, 32, 64, 128 or 256
    Raises  LabError: other bits; no product with stored weights
    """
    from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer
    from onnxruntime.quantization.onnx_model import ONNXModel

    if bits not in (4, 8):
        raise LabError("There are no kernels for weights of that many bits.", expected="8 or 4", found=bits)
    wrapped = ONNXModel(prepared(src))
    wrapped.replace_gemm_with_matmul()  # a Gemm is a product and an addition
    model = wrapped.model
    stored = {tensor.name for tensor in model.graph.initializer}
    if not any(node.op_type == "MatMul" and node.input[1] in stored for node in model.graph.node):
        found = ", ".join(sorted({node.op_type for node in model.graph.node}))
        raise LabError("There is nothing to quantize.", expected="MatMul or Gemm with stored weights", found=found)
    with explained(Path(src).name, "quantized"), quiet():
        # 1: fp32 in between. Left open, some kernels put the activations on a grid too.
        quantizer = MatMulNBitsQuantizer(model, bits=bits, block_size=block, is_symmetric=True, accuracy_level=1)
        quantizer.process()
    note = f"weights in {bits} bits, groups of {block}; computes in float"
    return written(quantizer.model.model, dst, quantized=note)
