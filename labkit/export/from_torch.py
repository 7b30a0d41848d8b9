"""From a torch module to an ONNX file."""

import copy
import warnings
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from labkit.errors import LabError
from labkit.export.gate import made_here
from labkit.files import atomic

if TYPE_CHECKING:
    from torch import nn

# The first with Gelu as one operator; every engine of the course reads it, and 23 would make BERT's `Attention`.
OPSET = 20
NO_BRANCH = "let the model's code not depend on it: no branch on len(x), no x.view(64, -1)"


def to_onnx(
    model: "nn.Module",
    example: Any,
    path: str | Path,
    *,
    dynamic_shapes: Any = None,
    notes: dict | None = None,
    **settings: Any,
) -> Path:
    """Write a torch module as an ONNX file, in eval mode, with a batch of any size: the path.

    model     a torch module; it is not changed
    example   (N, C, H, W) floats, the input is then called "input"; or (N, T) int64, called "tokens"; or a tuple of
              tensors for a module of several inputs, which keep the names they have in its forward
    dynamic_shapes  sides that vary beside the batch, {side: its largest length}: {1: 512} for sequences of 2 to 512,
              {2: 512, 3: 512} for images up to that. Or what torch.onnx.export calls so: a tuple of {side: Dim}, one
              for each input, with the batch where it is; the examples must then be 2 or longer there
    notes     {key: text} for the file's metadata
    settings  of torch.onnx.export: opset_version (`OPSET`); optimize=False keeps the graph as it was traced, without
              constants folded and batch norm fused
    Source    torch.onnx.export(dynamo=True): the module is traced by torch.export, each operator translated
    """
    import torch
    from torch.export import Dim

    from labkit.methods import fastswish

    names = None if isinstance(example, tuple) else ["input" if example.is_floating_point() else "tokens"]
    examples = tuple(each.detach().cpu() for each in (example if isinstance(example, tuple) else (example,)))
    shapes = dynamic_shapes or {}
    if isinstance(shapes, dict):
        examples = tuple(torch.cat([each, each]) for each in examples)  # a batch of 1 would be taken for a constant
        more = {side: Dim(f"side_{side}", min=2, max=longest) for side, longest in shapes.items()}
        shapes = ({0: Dim("batch")} | more,) * len(examples)
    _read_operators_once()
    with atomic(path) as temporary, warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")  # the exporter's own, about itself
        program = torch.onnx.export(
            # weights laid out as NHWC would make the exporter write its pooling as a search by computed places
            copy.deepcopy(model).cpu().eval().to(memory_format=torch.contiguous_format),
            examples,
            dynamo=True,
            dynamic_shapes=shapes,
            custom_translation_table=fastswish.onnx_translations(),
            verbose=False,
            **{"input_names": names, "output_names": ["logits"], "opset_version": OPSET} | settings,
        )
        _require_open(program, shapes)
        program.model.metadata_props.update(notes or {})
        program.save(temporary, external_data=False)
    return made_here(Path(path))


@cache
def _read_operators_once():
    """Let the exporter keep its list of operators: to make it takes a third of an export."""
    from torch.onnx._internal.exporter import _registration

    operators = getattr(_registration, "onnxscript_apis", None)
    if hasattr(operators, "get_torchlib_ops"):  # private, so it may go; then exports are slower
        operators.get_torchlib_ops = cache(operators.get_torchlib_ops)


def _require_open(program, shapes):
    """A LabError when a side that should vary is frozen, or the graph right for some batches only.

    The exporter freezes a side that it cannot keep open without a word. Of code that branches on the batch the graph
    holds one branch, and does not say for which sizes.
    """
    exported = program.exported_program
    names = exported.graph_signature.user_inputs
    nodes = [node for node in exported.graph.find_nodes(op="placeholder") if node.name in names]
    for value, node, sides in zip(program.model.graph.inputs, nodes, shapes, strict=True):
        for side in sides:
            if isinstance(value.shape[side], int):
                raise LabError(
                    "The exported graph takes one size only.",
                    expected=f"side {side} of {value.name} may vary",
                    found=f"always {value.shape[side]}",
                    fix=NO_BRANCH,
                )
        sizes = 0 in sides and exported.range_constraints.get(node.meta["val"].shape[0].node.expr)
        # torch.export looks at 0 and 1 apart from the others: where nothing branches, a side begins at 2 or before
        if sizes and (sizes.lower > 2 or sizes.upper < 1e6):
            raise LabError(
                "The exported graph is right for some batches only.",
                expected="a batch of any size",
                found=f"{sizes.lower} to {sizes.upper}",
                fix=NO_BRANCH,
            )
