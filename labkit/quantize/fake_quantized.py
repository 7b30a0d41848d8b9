"""A network that was trained with its rounding becomes a Q/DQ file on exactly the grids that it was
trained on.

What     the fake quantizers of a network (modules that round in training) are in the file
         QuantizeLinear and DequantizeLinear, and its weights are stored as integers
When     after quantization-aware training; or with scales that were chosen by hand, where `static`
         would observe others
Cost     none beyond that of an export
Not when the network has no fake quantizers: `static` makes them of a file in fp32
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
    """Write a network with fake quantizers as a checked Q/DQ file with stored integers. Returns the
    path.

    network   a torch module. While it is exported (`torch.compiler.is_exporting()`), each of its
              fake quantizers gives `torch.onnx.ops.symbolic("DequantizeLinear", ...)` of integers:
              of a weight those that it computes, of an activation those of
              `torch.onnx.ops.symbolic("QuantizeLinear", ...)`. An engine stores biases as multiples
              of the input's scale times that of the weights: unless the network rounds them so,
              too, their answers differ a little
    example   of `to_onnx`
    settings  of `to_onnx`
    Raises    LabError: nothing in the network is quantized; what `to_onnx` raises
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
    """Return a ModelProto in which everything that no input changes is computed: of weights the
    integers are left.
    """
    import onnx_ir
    from onnx_ir.passes.common import RemoveUnusedNodesPass
    from onnxscript import optimizer

    graph = onnx_ir.from_proto(model)
    # by itself the optimizer computes small constants only, and it never multiplies integers out
    optimizer.fold_constants(graph, input_size_limit=ANY_SIZE, output_size_limit=ANY_SIZE)
    RemoveUnusedNodesPass()(graph)
    return onnx_ir.to_proto(graph)
