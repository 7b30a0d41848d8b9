"""The gate for ONNX files from anywhere: nothing of a file is used before it is known to be whole, sized as it says,
of known operators, and to stay in its folder.

The order matters: what is cheap and protects the later steps comes first. The onnx checker, which walks the whole graph
in C++, comes last. What a gate cannot know is whether the network is a good one: `parity` and a test set tell.
"""

import functools
from collections import Counter
from pathlib import Path

import onnx
from google.protobuf.message import DecodeError
from onnx import TensorProto

from labkit.errors import LabError
from labkit.export.claims import check_reuse, check_tensor, claimed_bytes
from labkit.export.walk import MOST_NODES, graphs, has_sparse, names, scopes, tensors, written_out

LARGEST = 2**31  # bytes of the file itself: a protobuf message cannot be larger
ADVICE = "do not use it; export the model anew, or ask where the file comes from"


def checked(path):
    """Load an ONNX file, with its external data, after every check: an `onnx.ModelProto`.

    Raises LabError, naming the file and what is wrong: external data outside the file's folder, sizes that the bytes do
    not bear out, broken or endless graphs, unknown operators, inputs without a shape.
    """
    path = Path(path)
    try:
        model = parsed(path)
        check_bare(model)
        check_operators(model)
        for tensor in tensors(model):
            check_tensor(tensor, path.parent)
        check_reuse(tensors(model), path.parent)
        check_whole(model, path)
        onnx.load_external_data_for_model(model, str(path.parent))
    except LabError as error:
        parts = {"expected": error.expected, "found": error.found, "fix": error.fix or ADVICE}
        raise LabError(f"{path.name} is refused. {error.what}", **parts) from error
    return model


def parsed(path):
    """The message in the file, external data not followed."""
    if not path.is_file():
        raise LabError("There is no such file.", expected="an ONNX file", found=str(path), fix="check the path")
    size = path.stat().st_size
    if not 0 < size < LARGEST:
        raise LabError("This is not the size of an ONNX file.", expected="1 byte to 2 GiB", found=f"{size:,} bytes")
    try:
        model = onnx.load(path, format="protobuf", load_external_data=False)
    except DecodeError as error:
        raise LabError("It is damaged or no ONNX file.", expected="a protobuf message", found=str(error)) from error
    odd = next((name for name in names(model) if not isinstance(name, str)), None)
    if odd is not None:  # the reader hands out bytes where text is broken
        raise LabError("It is damaged: a name in it is no text.", expected="UTF-8", found=repr(odd)[:200])
    return model


def check_bare(model):
    """What must be there before anything is looked up: operator sets, nodes, inputs and outputs with shapes."""
    newest, opsets = onnx.defs.onnx_opset_version(), [opset for _, found in scopes(model) for opset in found.items()]
    versions = [version for domain, version in opsets if domain in ("", "ai.onnx")]
    if not versions or not all(1 <= version <= newest for version in versions):
        raise LabError("It states no usable operator set.", expected=f"version 1 to {newest}", found=str(versions))
    for what in ("node", "input", "output"):
        if not len(getattr(model.graph, what)):
            raise LabError(f"Its graph has no {what}.", expected=f"at least one {what}", found="none")
    if has_sparse(model):
        raise LabError("It holds sparse tensors.", expected="dense ones", found="sparse ones", fix="store them dense")
    count = written_out(model)
    if count > MOST_NODES:
        raise LabError(
            "Its functions unfold without end.", expected=f"{MOST_NODES:,} nodes or less", found=f"{count:,}"
        )
    stored = Counter(tensor.name for tensor in model.graph.initializer)
    twice = [name for name, times in stored.items() if times > 1]
    if twice:
        raise LabError("Two tensors have one name.", expected="a name for each", found=repr(twice[0]))
    for value in (*model.graph.input, *model.graph.output):
        check_value(value, must_have_shape=value.name not in stored)


def check_value(value, *, must_have_shape=False):
    """Refuse a graph input, output or inner value that is no tensor of a possible shape."""
    kind, tensor = value.type.WhichOneof("value"), value.type.tensor_type
    if kind != "tensor_type" or (must_have_shape and not tensor.HasField("shape")):
        raise LabError(
            f"{value.name!r} is no tensor of a known shape.",
            expected="a tensor with a shape, in which sides that vary have a name",
            found=kind if kind != "tensor_type" else "no shape",
        )
    sides = [side.dim_value for side in tensor.shape.dim if side.HasField("dim_value")]
    if must_have_shape and 0 in sides:
        raise LabError(f"{value.name!r} is empty.", expected="sides of at least 1", found=str(sides))
    if must_have_shape or tensor.elem_type:  # inference may know a shape without a type
        claimed_bytes(value.name, sides, tensor.elem_type)


def check_operators(model):
    """Refuse a node whose operator neither ONNX nor ONNX Runtime nor the model itself defines."""
    own = {(function.domain, function.name) for function in model.functions}
    for holder, versions in scopes(model):
        for graph in graphs(holder):
            for node in graph.node:
                known = (node.domain, node.op_type) in own or is_known(node.op_type, node.domain, versions)
                if not known:
                    name = f"{node.domain}.{node.op_type}".removeprefix(".")
                    raise LabError(
                        f"It has an operator that is not known: {name[:100]!r}.",
                        expected="operators of ONNX or ONNX Runtime",
                        found=f"node {node.name[:100]!r} with operator sets {dict(versions)}"[:300],
                        fix="export it again with an older opset or with the operator written as standard ones",
                    )


def is_known(operator, domain, versions):
    domain = "" if domain == "ai.onnx" else domain
    version = versions.get(domain, versions.get("ai.onnx") if not domain else None)
    if version is None:
        return False
    if onnx.defs.has(operator, version, domain):
        return not onnx.defs.get_schema(operator, version, domain).deprecated
    return bool(domain) and (operator, domain) in runtime_operators()


@functools.cache
def runtime_operators():
    """{(operator, domain)} that ONNX Runtime adds; empty where it is not installed."""
    try:
        from onnxruntime.capi.onnxruntime_pybind11_state import get_all_operator_schema
    except ImportError:
        return frozenset()
    return frozenset((schema.name, schema.domain) for schema in get_all_operator_schema())


def check_whole(model, path):
    """The onnx checker, strict shape inference, and the sizes that inference finds: a shape can be a bomb too."""
    try:
        onnx.checker.check_model(str(path))
        inferred = onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True, data_prop=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError, ValueError) as error:
        text = " ".join(str(error).split())
        raise LabError("Its graph does not hold together.", expected="a valid graph", found=text[:300]) from error
    for value in (*inferred.graph.value_info, *inferred.graph.output):
        if value.type.WhichOneof("value") == "tensor_type":
            check_value(value)


def precision_of(model):
    """What a ModelProto holds: "int8" (Q/DQ nodes), else the type of most of its weights: "fp32", "fp16" or "bf16"."""
    if any(node.op_type == "DequantizeLinear" for node in model.graph.node):
        return "int8"
    kinds = {TensorProto.FLOAT: "fp32", TensorProto.FLOAT16: "fp16", TensorProto.BFLOAT16: "bf16"}
    held = Counter({"fp32": 0})
    for tensor in model.graph.initializer:
        if tensor.data_type in kinds:
            held[kinds[tensor.data_type]] += claimed_bytes(tensor.name, tensor.dims, tensor.data_type)
    return held.most_common(1)[0][0]
