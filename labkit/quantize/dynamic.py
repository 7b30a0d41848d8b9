"""Quantization without data: ranges found anew in each call, or weights alone in few bits.

What     weights are stored as integers, one grid per output channel; the activations that enter a
         matrix product are put on a grid of 0 to 255 in each call, one grid for the whole tensor
When     no data is at hand, or ranges differ much from one input to the next, as those of a
         transformer do
Cost     each call looks for the ranges; an answer depends a little on the other items in its batch
Not when the network consists of convolutions: these stay float, because ONNX Runtime is no faster
         with dynamic convolutions
Source   ONNX Runtime's quantize_dynamic; Zafrir et al. 2019, arXiv:1910.06188
"""

import logging
import tempfile
import warnings
from collections.abc import Iterable
from contextlib import contextmanager
from pathlib import Path

from labkit.errors import LabError, require_known
from labkit.export.runtime import explained
from labkit.export.write import write_model
from labkit.quantize.preparation import prepared_for_quantizer
from labkit.quantize.ptq import layers_of, outlier_products

DYNAMIC = ("MatMul", "Gemm")
_LEVELS = {"float": 1, "int8": 4}  # ONNX Runtime's accuracy_level; left open, the kernel chooses


def dynamic(
    src: str | Path, dst: str | Path, *, in_float: Iterable[str] = (), bits: int = 7
) -> Path:
    """Write a copy of an ONNX file that computes products by stored weights in integers.

    src, dst  paths of the file and of the copy
    in_float  names of nodes to leave in float
    bits      number of bits of a weight, 7 or 8. Use 8 only on a CPU with VNNI instructions: other
              CPUs add two products in 16 bits, and weights of 8 bits overflow there
    returns   the path `dst`
    Raises    LabError: a name in `in_float` is no node; there is no product by stored weights
    """
    import onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic

    model = prepared_for_quantizer(src)
    layers = layers_of(model, DYNAMIC, in_float, stored=True)
    with explained(src, "quantized"), tempfile.TemporaryDirectory() as folder, _quiet():
        left_in_float = {*in_float, *outlier_products(model)}
        # The quantizer turns a Gemm into a MatMul of another name, and fails on declared shapes of
        # the old weights.
        to_quantize = []
        for name in layers:
            if name not in left_in_float:
                to_quantize += [name, f"{name}_MatMul"]
        del model.graph.value_info[:]

        int8_path = Path(folder) / "int8.onnx"
        quantize_dynamic(
            model,
            int8_path,
            nodes_to_quantize=to_quantize,
            per_channel=True,
            reduce_range=bits == 7,
            weight_type=QuantType.QInt8,
        )
        note = f"int8, ranges found in each call, weights of {bits} bits"
        return write_model(onnx.load(int8_path), dst, original=src, quantized=note)


def weight_only(
    src: str | Path, dst: str | Path, *, bits: int = 8, block: int = 32, inputs: str = "float"
) -> Path:
    """Write a copy of an ONNX file whose matrix products have stored weights of 4 or 8 bits.

    What     the weights of each output are cut into groups of `block`, and each group has its own
             scale. With inputs="float" the kernel turns the weights back into floats in every call.
             With inputs="int8" the inputs are cut into groups with scales as well, and integers are
             multiplied
    When     activations have outliers: an outlier coarsens the grid of its own group only. Or a
             call spends most of its time on loading weights, as in large language models at small
             batches
    Cost     with inputs="float" the products stay float and the weights are unpacked in each call:
             this is slower than fp32, unless loading the weights takes most of the time. With
             inputs="int8" a large batch gains less than by `dynamic`, because every group has a
             scale of its own
    Not when one grid for a whole activation is fine enough: then `dynamic` and `static` are faster
    Source   ONNX Runtime's MatMulNBits, rounding to nearest; groups: Yao et al. 2022,
             arXiv:2206.01861

    src, dst  paths of the file and of the copy
    bits      8 or 4
    block     number of weights that share a scale: 16, 32, 64, 128 or 256
    inputs    "float" or "int8". "int8" is a hint in the file: ONNX Runtime follows it if this CPU
              has a kernel for it
    returns   the path `dst`
    Raises    LabError: other bits or inputs; no product with stored weights
    """
    from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer
    from onnxruntime.quantization.onnx_model import ONNXModel

    if bits not in (4, 8):
        raise LabError(
            "There are no kernels for weights of that many bits.", expected="8 or 4", found=bits
        )
    require_known(inputs, tuple(_LEVELS), "kind of inputs")
    wrapped = ONNXModel(prepared_for_quantizer(src))
    wrapped.replace_gemm_with_matmul()  # a Gemm is a product and an addition
    model = wrapped.model
    layers_of(model, ("MatMul",), stored=True)
    with explained(src, "quantized"), _quiet():
        quantizer = MatMulNBitsQuantizer(
            model, bits=bits, block_size=block, is_symmetric=True, accuracy_level=_LEVELS[inputs]
        )
        quantizer.process()
    arithmetic = "float" if inputs == "float" else "integers"
    note = f"weights in {bits} bits, groups of {block}; computes in {arithmetic}"
    return write_model(quantizer.model.model, dst, original=src, quantized=note)


@contextmanager
def _quiet():
    """Silence the quantizer's progress messages and warnings while the block runs."""
    level = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(level)
