"""Read calibration data from a .npz file, for a network that does not take images."""

from pathlib import Path

import onnx
from onnx import helper

from labkit.errors import LabError
from labkit.export.inputs import graph_inputs, read_arrays
from labkit.quantize.calibration import MIN_EXAMPLES, Calibration, split_numbers

BATCH = 32


def arrays_for(model: onnx.ModelProto, path: str | Path, count: int, split: str) -> Calibration:
    """Return a `Calibration` with examples from a .npz file.

    model   the ModelProto of the network that takes the examples
    path    a .npz file with one array for each input of the model. The arrays are matched with the
            inputs by their names; if the names differ, by their order
    count   largest number of examples
    split   "test" for the examples that are held out, "train" for the others
    Raises  LabError: the file is damaged or does not fit the model; there are too few examples
    """
    path = Path(path)
    values = {value.name: value for value in graph_inputs(model)}
    arrays = read_arrays(path, list(values))
    if len(arrays) != len(values):
        raise LabError(
            f"{path.name} does not fit the model.",
            expected=f"{len(values)} arrays, for {', '.join(values)}",
            found=f"{len(arrays)}: {', '.join(arrays)}",
        )

    # The arrays in the types of the model, under its names.
    inputs = {}
    for (name, value), array in zip(values.items(), arrays.values(), strict=True):
        inputs[name] = array.astype(
            helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
        )

    # The examples of the split.
    example_count = len(next(iter(inputs.values())))
    numbers = split_numbers(example_count, split)
    if numbers is None:
        raise LabError(
            "There are too few examples to hold some of them out.",
            expected=f"{2 * MIN_EXAMPLES} in {path.name}",
            found=f"{example_count}",
            fix="give more examples",
        )
    numbers = numbers[:count]
    batches = []
    for begin in range(0, len(numbers), BATCH):
        chosen = numbers[begin : begin + BATCH]
        batches.append({name: array[chosen] for name, array in inputs.items()})
    return Calibration(tuple(batches), f"{path.name} {'held out' if split == 'test' else 'train'}")
