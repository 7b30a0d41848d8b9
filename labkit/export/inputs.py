"""What a graph wants as input, and made-up inputs that fit it."""

import numpy as np
from onnx import helper

from labkit.errors import LabError


def random_inputs(model, batch):
    """One tensor for each input of a ModelProto, the same each time: normal floats; integers 0 or 1, which are
    tokens of any vocabulary. The first dimension is the batch; any other that may vary is refused."""
    import torch

    random, found = np.random.default_rng(0), []
    for value in wanted(model):
        dtype = helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
        shape = _shape(value, batch, dtype)
        made = random.standard_normal(shape) if dtype.kind == "f" else random.integers(0, 2, shape)
        found.append(torch.from_numpy(made.astype(dtype)))
    return tuple(found)


def wanted(model):
    """The inputs (ValueInfoProto) of a ModelProto that are not stored in it, and so must be given."""
    stored = {tensor.name for tensor in model.graph.initializer}
    return [value for value in model.graph.input if value.name not in stored]


def _shape(value, batch, dtype):
    """The shape of a graph input (ValueInfoProto) for this batch size."""
    sides = dims(value)
    fixed = isinstance(sides[0], int) and sides[0] != batch
    if fixed or dtype.kind not in "fib" or not all(isinstance(side, int) for side in sides[1:]):
        raise LabError(
            f"No batch of {batch} can be made up for the input {value.name!r}.",
            expected="floats or integers of a fixed shape, behind a batch dimension that may vary",
            found=f"{dtype} ({', '.join(map(str, sides))})",
            fix="choose the batch size of the file, or export the model with fixed sides",
        )
    return batch, *sides[1:]


def dims(value):
    """The shape of a ValueInfoProto; a dimension that may vary is its name (or "?")."""
    sides = value.type.tensor_type.shape.dim
    return tuple(side.dim_value if side.HasField("dim_value") else side.dim_param or "?" for side in sides)
