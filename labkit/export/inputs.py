"""Make inputs for a graph: made-up ones that fit it, or those in a user's .npz file."""

import inspect
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import helper

from labkit.errors import LabError

if TYPE_CHECKING:
    import torch
    from torch import nn


def random_inputs(model, batch):
    """Make up one batch: a tuple with a tensor for each input of a ModelProto.

    Floats are normal numbers. Integers are 0 or 1, because these are tokens of any vocabulary. The
    numbers are the same in each call. Raises LabError if the model takes another batch size only,
    or if a further dimension may vary.

    batch  batch size, the first dimension
    """
    import torch

    generator = np.random.default_rng(0)
    tensors = []
    for value in graph_inputs(model):
        dtype = helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
        shape = _shape(value, batch, dtype)
        if dtype.kind == "f":
            array = generator.standard_normal(shape)
        else:
            array = generator.integers(0, 2, shape)
        tensors.append(torch.from_numpy(array.astype(dtype)))
    return tuple(tensors)


def varied_inputs(model: Any, calls: int = 4, items: int = 2) -> list[dict]:
    """Make up several batches whose items differ much: [{input name: array}], one for each batch.

    Floats are noise with a different mean and a different size in each item, as pictures differ in
    brightness and contrast. uint8 are pixels of 0 to 255. Other integers are 0 or 1, because these
    are tokens of any vocabulary. The numbers are the same in each call of this function.

    model  a ModelProto
    calls  number of batches
    items  number of items in a batch, if the model takes batches of any size. Another side that may
           vary gets the length 64 in images (four dimensions), else 16. Sides of the same name get
           the same length
    """
    generator = np.random.default_rng(0)
    return [_varied_call(model, items, generator) for _ in range(calls)]


def _varied_call(model, items, generator):
    """Return one batch for `varied_inputs`: {input name: array}.

    Raises LabError for an input that is not of numbers.

    generator  a NumPy random generator
    """
    lengths = {}  # {name of an open side: its length}
    arrays = {}
    for value in graph_inputs(model):
        dtype = helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
        if dtype.kind not in "fiub":
            raise LabError(
                "No values can be made up for an input.",
                expected="numbers",
                found=f"{value.name}: {dtype}",
            )
        sides = dims(value)
        shape = []
        for axis, side in enumerate(sides):
            if axis == 0:
                usual = items
            else:
                usual = 64 if len(sides) == 4 else 16
            if isinstance(side, str):
                side = usual if side == "?" else lengths.setdefault(side, usual)
            shape.append(side)
        arrays[value.name] = _varied_values(shape, dtype, generator)
    return arrays


def _varied_values(shape, dtype, generator):
    """Return an array of made-up values: noise per item, or pixels, or zeros and ones."""
    if dtype.kind == "f":
        per_item = (*shape[:1], *[1] * (len(shape) - 1))
        size = np.exp(generator.normal(size=per_item))
        return (generator.normal(size=per_item) + size * generator.normal(size=shape)).astype(dtype)
    above = 256 if dtype == np.uint8 else 2
    return generator.integers(0, above, shape).astype(dtype)


def inputs_from(path: str | Path, network: "nn.Module") -> "tuple[torch.Tensor, ...]":
    """Read the inputs of a network from a .npz file. Returns tensors in the order of its forward.

    path     a .npz file with one array for each input, as `numpy.savez(path, tokens=..., mask=...)`
             writes it. The first side of each array is the batch. If the arrays have the names of
             forward's parameters, they are matched by name; otherwise by their order in the file
    network  the torch module. NumPy makes float64 by default, so arrays of float64 become float32,
             unless the network has weights of float64
    returns  a tuple with one tensor for each array
    Raises   LabError, as `read_arrays`
    """
    import torch

    parameters = inspect.signature(network.forward).parameters
    arrays = read_arrays(path, list(parameters))
    in_double = any(weights.dtype == torch.float64 for weights in network.state_dict().values())
    tensors = []
    for array in arrays.values():
        tensor = torch.from_numpy(array)
        if tensor.dtype == torch.float64 and not in_double:
            tensor = tensor.float()
        tensors.append(tensor)
    return tuple(tensors)


def read_arrays(path: str | Path, names: list[str]) -> dict[str, np.ndarray]:
    """Read a .npz file with one array for each input. Returns {name: array}.

    names   names of the inputs, in order. If every array in the file has one of these names, the
            result is in their order; otherwise it is in the order of the file
    Raises  LabError: there is no such file; it has no arrays, or arrays of something other than
            numbers; the first sides of the arrays, the batch, are not equal
    """
    path = Path(path)
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = dict(file)
    except Exception as error:  # a damaged file may make a reader raise anything
        raise LabError(
            f"{path.name} cannot be read as inputs.",
            expected="a file .npz with an array for each input, written by numpy.savez",
            found=f"{type(error).__name__}: {' '.join(str(error).split())[:200]}",
            fix="numpy.savez(path, tokens=tokens, mask=mask)",
        ) from error

    # One batch of numbers.
    batches = {name: array.shape[:1] for name, array in arrays.items()}
    are_numbers = all(array.dtype.kind in "fiub" for array in arrays.values())
    if not arrays or not are_numbers or () in batches.values() or len(set(batches.values())) > 1:
        found = ", ".join(f"{name} {array.dtype} {array.shape}" for name, array in arrays.items())
        raise LabError(
            f"{path.name} does not hold a batch of inputs.",
            expected="arrays of numbers whose first sides, the batch, are equal",
            found=found or "no arrays",
        )
    if set(arrays) <= set(names):
        return {name: arrays[name] for name in names if name in arrays}
    return arrays


def graph_inputs(model):
    """Return the inputs that a caller of a ModelProto must give: a list of ValueInfoProto.

    Older files also list their weights as inputs; these are left out.
    """
    stored = {tensor.name for tensor in model.graph.initializer}
    return [value for value in model.graph.input if value.name not in stored]


def _shape(value, batch, dtype):
    """Return the shape of a graph input for one batch size.

    Raises LabError where no values can be made up for that shape.

    value  the input's ValueInfoProto
    dtype  its NumPy type
    """
    sides = dims(value)
    fixed = isinstance(sides[0], int) and sides[0] != batch
    if fixed or dtype.kind not in "fiub" or not all(isinstance(side, int) for side in sides[1:]):
        raise LabError(
            f"No batch of {batch} can be made up for the input {value.name!r}.",
            expected="floats or integers of a fixed shape, behind a batch dimension that may vary",
            found=f"{dtype} ({', '.join(map(str, sides))})",
            fix="choose the batch size of the file, or export the model with fixed sides",
        )
    return batch, *sides[1:]


def dims(value):
    """Return the shape of a ValueInfoProto, with a name (or "?") for a side that may vary."""
    sides = value.type.tensor_type.shape.dim
    return tuple(
        side.dim_value if side.HasField("dim_value") else side.dim_param or "?" for side in sides
    )
