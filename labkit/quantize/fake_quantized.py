"""Export of a network that was trained with rounding to a Q/DQ file on exactly the same grids.

What     the fake quantizers of a network (modules that round in training) become QuantizeLinear
         and DequantizeLinear in the file, and its weights are stored as integers
When     after quantization-aware training; or with scales that were chosen by hand, where `static`
         would observe others
Cost     none beyond that of an export
Not when the network has no fake quantizers: `static` quantizes its file in fp32
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
    """Write a network with fake quantizers as a checked Q/DQ file. Returns the path.

    network   a torch module. While it is exported (`torch.compiler.is_exporting()`), each of its
              fake quantizers returns `torch.onnx.ops.symbolic("DequantizeLinear", ...)` of
              integers. The integers of a weight are computed by the quantizer; those of an
              activation are `torch.onnx.ops.symbolic("QuantizeLinear", ...)`
    example   an input of the network, as for `to_onnx`
    path      of the file
    settings  further keyword arguments of `to_onnx`
    Raises    LabError: nothing in the network is quantized; every error of `to_onnx`

    An engine rounds biases to multiples of the input's scale times the weights' scale. Unless the
    network rounds them in this way, too, the answers of both differ a little.
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
    """Return a ModelProto in which everything that does not depend on an input is computed.

    Of the weights, only their integers are left.
    """
    import onnx_ir
    from onnx_ir.passes.common import RemoveUnusedNodesPass
    from onnxscript import optimizer

    graph = onnx_ir.from_proto(model)
    # by itself the optimizer computes small constants only, and it never multiplies integers out
    optimizer.fold_constants(graph, input_size_limit=ANY_SIZE, output_size_limit=ANY_SIZE)
    RemoveUnusedNodesPass()(graph)
    return onnx_ir.to_proto(graph)
