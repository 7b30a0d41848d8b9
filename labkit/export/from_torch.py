"""From a torch module to an ONNX file."""

import copy
import warnings
from pathlib import Path

import onnx
import torch

from labkit.errors import LabError
from labkit.export.inputs import dims
from labkit.files import atomic

# The first with Gelu as one operator; every engine of the course reads it, and 23 would make BERT's `Attention`.
OPSET = 20
LARGEST = 2**31  # bytes of one protobuf message: weights beyond it need files of their own


def to_onnx(model, example, path, *, opset=None, optimize=True):
    """Write a torch module as an ONNX file, in eval mode, with a batch of any size: the path.

    model     a torch module; it is not changed
    example   (N, C, H, W) floats, the input is then called "input"; or (N, T) int64, called "tokens"
    opset     version of the operator set; None: `OPSET`
    optimize  let the exporter fold constants and fuse batch norm; False keeps the graph as it was traced
    Source    torch.onnx.export(dynamo=True): the module is traced by torch.export, each operator translated
    """
    size = sum(tensor.nbytes for tensor in model.state_dict().values())
    if size >= LARGEST:
        raise LabError(
            "This model does not fit in one ONNX file.", expected="weights below 2 GiB", found=f"{size / 2**30:.1f} GiB"
        )
    model, example = copy.deepcopy(model).cpu().eval(), example.detach().cpu()
    if len(example) < 2:  # a size of 1 would be taken for a constant
        example = torch.cat([example, example])
    with atomic(path) as temporary, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporter's own, about itself
        torch.onnx.export(
            model,
            (example,),
            temporary,
            dynamo=True,
            dynamic_shapes=({0: torch.export.Dim("batch")},),
            input_names=["input" if example.is_floating_point() else "tokens"],
            output_names=["logits"],
            opset_version=opset or OPSET,
            optimize=optimize,
            custom_translation_table=translations(),
            external_data=False,
            verbose=False,
        )
        require_open_batch(temporary)
    return Path(path)


def require_open_batch(path):
    """A LabError when the exporter could not keep the batch dimension open: it then freezes it without a word."""
    first = dims(onnx.load(path).graph.input[0])[0]
    if isinstance(first, int):
        raise LabError(
            "The exported graph takes one batch size only.",
            expected="a batch dimension that may vary",
            found=f"a batch of {first}",
            fix="let the model's Python code not depend on the batch size: no branch on len(x), no x.view(64, -1)",
        )


def translations():
    """{custom torch operator: how it is written in ONNX}, of the methods that bring operators of their own."""
    from labkit.methods import fastswish

    return fastswish.onnx_translations()
