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

    model     a torch module; it is not changed
    example   (N, C, H, W) floats: the input is then called "input"; or (N, T) int64: it is called
              "tokens"; or a tuple of tensors for a module of several inputs, which keep the names
              that they have in its forward
    dynamic_shapes  sides that may vary besides the batch, {side: its largest length}: {1: 512} for
                    sequences of 2 to 512, {2: 512, 3: 512} for images up to that size. Or the
                    dynamic_shapes of torch.onnx.export: a tuple of {side: Dim}, one for each input
                    and with the batch; the examples must then be 2 or longer in those sides
    notes     {key: text} for the file's metadata
    settings  of torch.onnx.export: opset_version (`OPSET`); optimize=False keeps the graph as it
              was traced, without constants folded and batch norm fused; external_data=True puts the
              weights into a second file, PATH.data, as is always done for more than 2 GB
    Raises    LabError for a network that does not take the example, or that torch.onnx.export
              cannot write; for a graph that is right for some batches only; for a file that cannot
              be opened
    Source    torch.onnx.export(dynamo=True): torch.export traces the module, and each operator is
              translated
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
    """Raise a LabError where a network itself does not take the example.

    This is asked after a failed export, so that the exporter is not blamed for the network.
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

    The shapes are one {side: Dim} for each example. The examples get a batch of 2 at least.

    dynamic_shapes  as in `to_onnx`; a tuple of {side: Dim} is returned unchanged, with its examples
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
    """Return the {side: Dim} of each input in the form that torch.export wants.

    The shapes of `*inputs` stand in a tuple of their own.
    """
    kinds = [parameter.kind for parameter in inspect.signature(network.forward).parameters.values()]
    if inspect.Parameter.VAR_POSITIONAL not in kinds:
        return shapes
    position = kinds.index(inspect.Parameter.VAR_POSITIONAL)
    return (*shapes[:position], tuple(shapes[position:]))


def _rename_weights_called_like_ends(graph):
    """Rename weights that have the name of an input or output: the file would be invalid."""
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
    """Let the exporter leave out x + 0 and x * 1 only where the constant is exactly 0 or 1.

    By default the exporter takes 1e-8 for 0 and 1.00001 for 1. Without the epsilon of x / (sum +
    1e-8), zeros become NaN.
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
    """Raise a LabError where the graph is right for some sizes of its inputs only.

    The exporter freezes a side that it cannot keep open, without a word. Where the code branches on
    the batch, the graph holds one branch and does not say for which sizes.

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
