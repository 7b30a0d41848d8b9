"""An ONNX file as it is drawn: its structure, what it holds in numbers, and bytes without the large tensors."""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from onnx import TensorProto

from labkit.errors import LabError
from labkit.export.gate import parsed
from labkit.export.walk import tensors

LEFT_OUT = "left out of this page"  # netron names this as the place of a tensor that is not there
KINDS = TensorProto.DataType.DESCRIPTOR.values_by_number


@dataclass(frozen=True)
class Graph:
    """A model ready to be drawn.

    name            the file's name
    packed          its bytes, without the tensors that were too large
    operators       {operator: count}
    inputs, outputs texts such as "input float32 batch×3×224×224"
    opset           the version of ONNX's own operators, None where only others are used
    file_bytes      size of the file
    left_out        how many tensors were left out
    """

    name: str
    packed: bytes
    operators: Counter
    inputs: list
    outputs: list
    opset: int | None
    file_bytes: int
    left_out: int

    def facts(self):
        """{what: text} for the table above the drawing."""
        return {
            "nodes": f"{self.operators.total():,}",
            "operators": ", ".join(f"{name} {count}" for name, count in self.operators.most_common()),
            "inputs": "; ".join(self.inputs),
            "outputs": "; ".join(self.outputs),
            "opset": "–" if self.opset is None else str(self.opset),
            "file": f"{self.file_bytes / 1e6:,.2f} MB",
            "large tensors": f"{self.left_out} not in the drawing; the command labkit view shows them"
            if self.left_out
            else "none",
        }


def read(path, *, largest_tensor):
    """The `Graph` of an ONNX file. No other file is opened, whatever the model refers to.

    largest_tensor  bytes; tensors above it are left out
    Raises          LabError for what is not an ONNX file; a graph that is wrong is drawn as it is
    """
    path = Path(path)
    model = parsed(path)
    if not model.graph.node:
        raise LabError(f"{path.name} has nothing to draw.", expected="a graph with nodes", found="none")
    left_out = sum(empty(tensor) for tensor in tensors(model) if tensor.ByteSize() > largest_tensor)
    return Graph(
        name=path.name,
        packed=model.SerializeToString(),
        operators=Counter(node.op_type for node in model.graph.node),
        inputs=list(map(described, inputs(model.graph))),
        outputs=list(map(described, model.graph.output)),
        opset=next((entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")), None),
        file_bytes=path.stat().st_size,
        left_out=left_out,
    )


def inputs(graph):
    """What a caller gives: older files list the weights among the inputs."""
    weights = {tensor.name for tensor in graph.initializer}
    return [value for value in graph.input if value.name not in weights]


def described(value):
    """ "input float32 batch×3×224×224" of a ValueInfoProto."""
    tensor = value.type.tensor_type
    kind = KINDS[tensor.elem_type].name.lower() if tensor.elem_type in KINDS else "?"
    sizes = [str(getattr(size, size.WhichOneof("value") or "", "?")) for size in tensor.shape.dim]
    return f"{value.name} {kind} {'×'.join(sizes)}".rstrip()


def empty(tensor):
    """Take a tensor's values away, in place; name, type and shape stay. Returns whether there were any."""
    if tensor.data_location == TensorProto.EXTERNAL:
        return False
    for field, _ in tensor.ListFields():
        if field.name.endswith("_data"):
            tensor.ClearField(field.name)
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value=LEFT_OUT)
    return True
