"""Write a torch module as an ONNX file."""

import copy
import inspect
import io
import warnings
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from labkit.errors import LabError
from labkit.export.write import write_checked

if TYPE_CHECKING:
    from torch import nn

# The first opset with Gelu as one operator; every engine of the course reads it. Opset 23 would
# make one operator, `Attention`, of BERT's attention.
OPSET = 20
NO_GRAPH = (
    "change that line of the network: no branch on values, no operator outside of ONNX; of a "
    "detector export the part "
    "that ends before boxes are chosen"
)
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
    """Write a torch module as an ONNX file, in eval mode, with a batch of any size.

    Returns the path.

    model           a torch module; it is not changed
    example         an input of the module. Floats (N, C, H, W): the file then names the input
                    "input". Or int64 (N, T): it is named "tokens". Or a tuple of tensors for a
                    module of several inputs: these keep the names that they have in the module's
                    forward
    dynamic_shapes  the sides that may vary besides the batch, {side: its largest length}. For
                    example {1: 512} for sequences of 2 to 512 tokens, {2: 512, 3: 512} for images
                    of up to 512 pixels a side. Or the dynamic_shapes of torch.onnx.export: a tuple
                    with {side: Dim} for each input, the batch included. Then the examples must have
                    a length of 2 or more in each of these sides
    notes           {key: text} for the file's metadata
    settings        further arguments of torch.onnx.export. opset_version is `OPSET` by default.
                    optimize=False keeps the graph as it was traced: no constants are folded, no
                    batch norm is fused. external_data=True writes the weights into a second file,
                    PATH.data; a network of more than 2 GB always gets one
    Raises          LabError: the network does not take the example; torch.onnx.export cannot write
                    the network; the graph is right for some batch sizes only; the file cannot be
                    opened
    Source          torch.onnx.export(dynamo=True): torch.export traces the module, and each
                    operator is translated
    """
    import torch

    from labkit.methods import fastswish

    if isinstance(example, tuple):
        names = None  # the names in the module's forward
        examples = tuple(tensor.detach().cpu() for tensor in example)
    else:
        names = ["input" if example.is_floating_point() else "tokens"]
        examples = (example.detach().cpu(),)
    examples, shapes = _with_open_sides(examples, dynamic_shapes or {})
    network = _copy_of(model)
    _leave_out_exact_constants_only()

    # Trace the module, and translate each operator.
    external_data = settings.pop("external_data", False)
    defaults = {"input_names": names, "output_names": ["logits"], "opset_version": OPSET}
    with _quiet(), torch.no_grad():
        try:
            program = torch.onnx.export(
                network,
                examples,
                dynamo=True,
                dynamic_shapes=_as_in_forward(shapes, network),
                custom_translation_table=fastswish.onnx_translations(),
                verbose=False,
                **defaults | settings,
            )
        # tracing runs the network's own code, and the exporter has many kinds of errors
        except Exception as error:
            _require_taken(network, examples)
            raise LabError(
                f"torch.onnx.export cannot write {type(model).__name__} as a graph.",
                expected="code that torch.export can trace, of operators that ONNX has",
                found=_last_reason(error),
                fix=NO_GRAPH,
            ) from error
        _require_open(program, shapes)
        program.model.metadata_props.update(notes or {})
    _rename_weights_called_like_ends(program.model.graph)
    return write_checked(partial(program.save, external_data=external_data), path)


@contextmanager
def _quiet():
    """Suppress the warnings and the printed text of the exporter inside the context."""
    unread = io.StringIO()
    with warnings.catch_warnings(), redirect_stdout(unread), redirect_stderr(unread):
        warnings.simplefilter("ignore")
        yield


def _copy_of(model):
    """Return a copy of a module to trace: in eval mode, on the CPU.

    Raises LabError for a module that cannot be copied.
    """
    import torch

    try:
        network = copy.deepcopy(model)
    # torch.nn.utils.weight_norm keeps the product of its parts as an attribute
    except RuntimeError as error:
        raise LabError(
            f"{type(model).__name__} cannot be copied.",
            expected="parameters and buffers, and no tensors that were computed from them",
            found=_last_reason(error),
            fix="torch.nn.utils.parametrizations.weight_norm in place of "
            "torch.nn.utils.weight_norm",
        ) from error
    # Weights laid out as NHWC would make the exporter write its pooling as a search by computed
    # places.
    return network.cpu().eval().to(memory_format=torch.contiguous_format)


def _require_taken(network, examples):
    """Raise a LabError if the network itself fails on the examples.

    The function is called after a failed export. It tells a fault of the network from a fault of
    the exporter.

    network   a torch module
    examples  a tuple of tensors
    """
    import torch

    try:
        with torch.no_grad():
            network(*examples)
    except Exception as error:  # the network's own code may fail in any way
        shapes = ", ".join(str(tuple(example.shape)) for example in examples)
        raise LabError(
            f"{type(network).__name__} does not take the example.",
            expected="what its forward takes",
            found=f"{_in_one_line(error)}, for {shapes}",
            fix="pictures of another size: --size; what is no picture: --inputs FILE.npz, an "
            "array for each input",
        ) from error


def _last_reason(error):
    """Return in one line the exception that came first in a chain.

    The later exceptions repeat it at length.
    """
    while error.__cause__ or error.__context__:
        error = error.__cause__ or error.__context__
    return _in_one_line(error)


def _in_one_line(error):
    """Return the type of an exception and the first line of its text."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0][:200]}" if lines else type(error).__name__


def _with_open_sides(examples, dynamic_shapes):
    """Return (examples, shapes) for an export with a batch of any size.

    The returned examples have a batch of 2 or more, because the exporter takes a batch of 1 for a
    constant. The shapes are a tuple with one {side: Dim} for each example.

    examples        a tuple of tensors
    dynamic_shapes  as in `to_onnx`. If it is a tuple of {side: Dim}, both arguments are returned
                    unchanged
    """
    import torch
    from torch.export import Dim

    if not isinstance(dynamic_shapes, dict):
        return examples, dynamic_shapes
    open_sides = {0: Dim("batch")}
    for side, longest in dynamic_shapes.items():
        open_sides[side] = Dim(f"side_{side}", min=2, max=longest)
    # a batch of 1 would be taken for a constant
    doubled = tuple(torch.cat([tensor, tensor]) for tensor in examples)
    return doubled, (open_sides,) * len(examples)


def _as_in_forward(shapes, network):
    """Return the shapes in the nesting that torch.export expects for the network's forward.

    If forward has a parameter such as `*inputs`, the shapes of these inputs are put into a tuple of
    their own. Otherwise the shapes are returned unchanged.

    shapes  a tuple with one {side: Dim} for each input
    """
    kinds = [parameter.kind for parameter in inspect.signature(network.forward).parameters.values()]
    if inspect.Parameter.VAR_POSITIONAL not in kinds:
        return shapes
    position = kinds.index(inspect.Parameter.VAR_POSITIONAL)
    return (*shapes[:position], tuple(shapes[position:]))


def _rename_weights_called_like_ends(graph):
    """Rename each weight whose name is also that of an input or output of the graph.

    Otherwise the file would be invalid.
    """
    ends = {value.name for value in (*graph.inputs, *graph.outputs)}
    names = {*graph.initializers, *ends, *(value.name for node in graph for value in node.outputs)}
    for weights in [graph.initializers[name] for name in ends & set(graph.initializers)]:
        if weights in graph.inputs:
            continue
        new_name = f"{weights.name}_weights"
        while new_name in names:
            new_name += "_"
        del graph.initializers[weights.name]
        weights.name = new_name
        graph.initializers[new_name] = weights


@cache
def _leave_out_exact_constants_only():
    """Let the exporter remove x + 0 and x * 1 only if the constant is exactly 0 or 1.

    By default the exporter also removes x + 1e-8 and x * 1.00001. But without 1e-8 in x / (sum +
    1e-8), a sum of 0 gives NaN.
    """
    from onnxscript import rewriter

    # private, there is no public way: a test looks whether it still works
    for rule in rewriter._DEFAULT_REWRITE_RULES:
        for node in getattr(rule, "_target_pattern", ()):
            for constant in node.inputs:
                if hasattr(constant, "_abs_tol"):
                    constant._abs_tol = 0.0
                    constant._rel_tol = 0.0


def _require_open(program, shapes):
    """Raise a LabError if the exported graph is right for some sizes of its inputs only.

    There are two cases. The exporter may fix the length of a side that should vary, without a
    warning. Or the network's code branches on the batch size: then the graph holds one branch only,
    and the file does not say for which sizes.

    program  the ONNXProgram that torch.onnx.export returned
    shapes   one {side: Dim} for each input: the sides that should vary
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
        # torch.export looks at 0 and 1 apart from the others: where nothing branches, a side begins
        # at 2 or before
        if sizes and (sizes.lower > 2 or sizes.upper < 1e6):
            raise LabError(
                "The exported graph is right for some batches only.",
                expected="a batch of any size",
                found=f"{sizes.lower} to {sizes.upper}",
                fix=NO_BRANCH,
            )
