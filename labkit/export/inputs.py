"""The inputs of a graph or a network: made-up inputs that fit, or those of a user's file."""

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
    """Make up a tensor for each input of a ModelProto. Returns a tuple, the same each time.

    Floats are normal; integers are 0 or 1, which are tokens of any vocabulary. The first dimension
    is the batch. Raises LabError where another dimension may vary.
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
    """Make up inputs that differ much from item to item, the same each time.

    Returns a list of {input name: array}, one for each call. Floats are noise with a mean and a
    size of their own in each item, as pictures differ in brightness and contrast; uint8 are pixels;
    other integers are 0 or 1, which are tokens of any vocabulary.

    model  a ModelProto
    calls  how many calls
    items  in each call, where the first side is open. Other open sides have a length of 64 in
           images (four dimensions), else 16; sides of one name have one length
    """
    generator = np.random.default_rng(0)
    return [_varied_call(model, items, generator) for _ in range(calls)]


def _varied_call(model, items, generator):
    """Return {input name: array} for one call.

    Raises LabError for an input that is not of numbers.
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
    """Read the inputs of a network from a NumPy file. Returns tensors in the order of its forward.

    path     .npz, with an array for each input, as `numpy.savez(path, tokens=..., mask=...)` writes
             it. The arrays may have the names of forward's parameters; otherwise their order in the
             file counts. The first side of each is the batch
    network  its forward says the order. Where none of its weights is float64, arrays of float64,
             which NumPy makes unasked, become float32
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
    """Read a file .npz that holds an array for each input: {name: array}.

    The first side of each array is the batch; it is equal for all.

    names   the names of the inputs, in their order. Where all arrays have such names, the result
            has that order; otherwise it has the order of the file
    Raises  LabError: no such file; no arrays of numbers; batches of different sizes
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
    """Return the inputs of a ModelProto that must be given: a list of ValueInfoProto.

    Inputs whose values are stored in the model are left out.
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
