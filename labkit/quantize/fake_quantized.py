"""Export of a quantization-aware training: a Q/DQ file with exactly the grids of the training.

What     a network that is trained for INT8 has fake quantizers, modules that round in training. In
         the file they become QuantizeLinear and DequantizeLinear nodes, and the weights are stored
         as integers
When     after quantization-aware training. Or when scales were chosen by hand, because `static`
         would observe its own
Cost     no more than an ordinary export
Not when the network has no fake quantizers: export it in fp32, and quantize the file by `static`
Source   ONNX, operators QuantizeLinear and DequantizeLinear; torch.onnx.ops.symbolic
"""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import onnx

from labkit.errors import LabError
from labkit.export.from_torch import to_onnx
from labkit.export.runtime import notes
from labkit.export.write import write_model

if TYPE_CHECKING:
    from torch import nn

ANY_SIZE = 2**62  # of a tensor that is computed once


def from_fake_quantized(
    network: "nn.Module", example: Any, path: str | Path, **settings: Any
) -> Path:
    """Write a network with fake quantizers as a Q/DQ file, and check the file. Returns the path.

    network   a torch module. During an export, while `torch.compiler.is_exporting()` is True, its
              fake quantizers must write ONNX nodes by `torch.onnx.ops.symbolic`. A quantizer of an
              activation writes two nodes: "QuantizeLinear", and "DequantizeLinear" of its result. A
              quantizer of a weight rounds the weight to integers in torch, and writes one node:
              "DequantizeLinear" of these integers
    example   an input of the network, as for `to_onnx`
    path      path of the file
    settings  further keyword arguments of `to_onnx`
    Raises    LabError: nothing in the network is quantized; every error of `to_onnx`

    An engine rounds each bias to a multiple of (scale of the input) * (scale of the weights). If
    the network does not round its biases in this way, the engine's answers differ a little from its
    own.
    """
    with TemporaryDirectory() as folder:
        draft = to_onnx(network, example, Path(folder) / "computed.onnx", **settings)
        model = _with_stored_integers(onnx.load(draft))
    if not any(node.op_type == "DequantizeLinear" for node in model.graph.node):
        raise LabError(
            f"Nothing in {type(network).__name__} is quantized.",
            expected="fake quantizers, which write DequantizeLinear nodes in an export",
            found="none",
            fix="labkit.quantize.static, for a network that was trained without rounding",
        )
    metadata = {**notes(model), "quantized": "int8, on the grids that the network was trained on"}
    return write_model(model, path, **metadata)


def _with_stored_integers(model):
    """Return a ModelProto in which each node that depends on no input is replaced by its value.

    The float weights are rounded by such nodes. So only their integers remain in the file.
    """
    import onnx_ir
    from onnx_ir.passes.common import RemoveUnusedNodesPass
    from onnxscript import optimizer

    graph = onnx_ir.from_proto(model)
    # by itself the optimizer computes small constants only, and it never multiplies integers out
    optimizer.fold_constants(graph, input_size_limit=ANY_SIZE, output_size_limit=ANY_SIZE)
    RemoveUnusedNodesPass()(graph)
    return onnx_ir.to_proto(graph)
