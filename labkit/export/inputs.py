"""What a graph wants as input, and made-up inputs that fit it."""

import torch
from onnx import TensorProto

from labkit.errors import LabError

DTYPES = {
    TensorProto.FLOAT: torch.float32,
    TensorProto.FLOAT16: torch.float16,
    TensorProto.INT64: torch.int64,
    TensorProto.INT32: torch.int32,
    TensorProto.BOOL: torch.bool,
}


def random_inputs(model, batch, seed=0):
    """One tensor for each input of a ModelProto, the same for one seed: normal floats; integers 0 or 1, which are
    tokens of any vocabulary. The first dimension is the batch; any other that may vary is refused."""
    random, stored = torch.Generator().manual_seed(seed), {tensor.name for tensor in model.graph.initializer}
    values = [value for value in model.graph.input if value.name not in stored]
    return tuple(random_input(value, batch, random) for value in values)


def random_input(value, batch, random):
    """A tensor for one graph input (ValueInfoProto)."""
    kind, (first, *rest) = value.type.tensor_type.elem_type, dims(value)
    open_sides = [name for name in rest if not isinstance(name, int)]
    fixed = isinstance(first, int) and first != batch
    if open_sides or fixed or kind not in DTYPES:
        raise LabError(
            f"No batch of {batch} can be made up for the input {value.name!r}.",
            expected="floats or integers of a fixed shape, behind a batch dimension that may vary",
            found=f"{TensorProto.DataType.Name(kind)} ({', '.join(map(str, dims(value)))})",
            fix="choose the batch size of the file" if fixed else "export the model with fixed sides",
        )
    shape, dtype = (batch, *rest), DTYPES[kind]
    if dtype.is_floating_point:
        return torch.randn(shape, generator=random).to(dtype)
    return torch.randint(0, 2, shape, generator=random).to(dtype)


def dims(value):
    """The shape of a ValueInfoProto; a dimension that may vary is its name (or "?")."""
    sides = value.type.tensor_type.shape.dim
    return tuple(side.dim_value if side.HasField("dim_value") else side.dim_param or "?" for side in sides)
