"""From a torch module to an ONNX file."""

import copy
import warnings
from functools import cache
from pathlib import Path

import onnx

from labkit.errors import LabError
from labkit.export.inputs import dims
from labkit.files import atomic

# The first with Gelu as one operator; every engine of the course reads it, and 23 would make BERT's `Attention`.
OPSET = 20


def to_onnx(model, example, path, *, opset=None, optimize=True, longest=None):
    """Write a torch module as an ONNX file, in eval mode, with a batch of any size: the path.

    model     a torch module; it is not changed
    example   (N, C, H, W) floats, the input is then called "input"; or (N, T) int64, called "tokens"; or a tuple of
              tensors for a module of several inputs, which keep the names they have in its forward
    opset     version of the operator set; None: `OPSET`
    optimize  let the exporter fold constants and fuse batch norm; False keeps the graph as it was traced
    longest   let the second side vary as well, from 2 to this: sequences of any length
    Source    torch.onnx.export(dynamo=True): the module is traced by torch.export, each operator translated
    """
    import torch

    from labkit.methods import fastswish

    examples = example if isinstance(example, tuple) else (example,)
    names = None if isinstance(example, tuple) else ["input" if example.is_floating_point() else "tokens"]
    _read_operators_once()
    with atomic(path) as temporary, warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")  # the exporter's own, about itself
        torch.onnx.export(
            # weights laid out as NHWC would make the exporter write its pooling as a search by computed places
            copy.deepcopy(model).cpu().eval().to(memory_format=torch.contiguous_format),
            tuple(_two_at_least(each.detach().cpu()) for each in examples),
            temporary,
            dynamo=True,
            dynamic_shapes=tuple(_open_sides(longest) for _ in examples),
            input_names=names,
            output_names=["logits"],
            opset_version=opset or OPSET,
            optimize=optimize,
            custom_translation_table=fastswish.onnx_translations(),
            external_data=False,
            verbose=False,
        )
        _require_open_batch(temporary)
    return Path(path)


def _two_at_least(batch):
    """A batch of 1 would be taken for a constant."""
    import torch

    return torch.cat([batch, batch]) if len(batch) < 2 else batch


def _open_sides(longest):
    """{side that may vary: its `Dim`} of one input."""
    from torch.export import Dim

    return {0: Dim("batch")} | ({1: Dim("length", min=2, max=longest)} if longest else {})


@cache
def _read_operators_once():
    """Let the exporter keep its list of operators: to make it takes a third of an export."""
    from torch.onnx._internal.exporter import _registration

    operators = getattr(_registration, "onnxscript_apis", None)
    if hasattr(operators, "get_torchlib_ops"):  # private, so it may go; then exports are slower
        operators.get_torchlib_ops = cache(operators.get_torchlib_ops)


def _require_open_batch(path):
    """A LabError when the exporter could not keep the batch dimension open: it then freezes it without a word."""
    first = next((side for value in onnx.load(path).graph.input if isinstance(side := dims(value)[0], int)), None)
    if first is not None:
        raise LabError(
            "The exported graph takes one batch size only.",
            expected="a batch dimension that may vary",
            found=f"a batch of {first}",
            fix="let the model's Python code not depend on the batch size: no branch on len(x), no x.view(64, -1)",
        )
