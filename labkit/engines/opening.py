"""Open the network that a command measures, and prepare inputs for it.

The network is one of the course, given by its name, or an ONNX file.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from labkit import device as devices
from labkit import export, models
from labkit.engines._varied_batches import NORMAL_BATCHES
from labkit.engines.cache import refuse_compiled_file
from labkit.errors import LabError
from labkit.quantize import comparison_images


@dataclass(frozen=True)
class Opened:
    """A network that is ready to be loaded into engines, with inputs for it.

    name          name of the network or of its file
    model         a torch module or the path of an ONNX file, as `engines.load` takes it
    precision     the precision that the model holds
    inputs        function (batch size) -> a tuple of tensors on the device, one for each input
    user_batches  function (batch size) -> a list of further such tuples, made of the user's data.
                  The list is empty if the inputs are random
    graph         the ModelProto of an ONNX file; None for a torch module
    examples      a text that says which data of the user the inputs are; None: the inputs are
                  random
    """

    name: str
    model: Any
    precision: str
    inputs: Callable
    user_batches: Callable = lambda batch: []
    graph: Any = None
    examples: str | None = None

    def inputs_in_words(self) -> str:
        """Return a text for the user that names the inputs of an ONNX file.

        It says on which inputs the file is timed, and on which its answers are compared.
        """
        if self.examples is None:
            return (
                "Timed on random numbers. In small numbers, whether answers are as the file means "
                "is judged on 8 made-up examples, as `labkit quantize` does without --data."
            )
        return (
            f"Timed on {self.examples}. Whether answers are as the file means is judged on the "
            f"first {NORMAL_BATCHES + 1} batches of them."
        )


def opened(name: str, data: str | None = None, **pictures: Any) -> Opened:
    """Open a network of the course, or an ONNX file. Returns an `Opened`.

    name      the name of a network, or the path of a .onnx file
    data      name of a data set, a folder of pictures or a .npz file; its test examples are the
              inputs. Only for ONNX files. None: random inputs
    pictures  size, mean and std, as for `quantize.images_for`
    Raises    LabError: a compiled file, a damaged file, an unknown name, or data for a network that
              is no file
    """
    refuse_compiled_file(name)
    device = devices.pick()

    # A file, with random inputs or the user's.
    if Path(name).suffix == ".onnx":
        graph = export.checked(name)
        make_inputs: Callable = partial(export.random_inputs, graph)
        further = range(0)
        description = None
        if data is not None:
            images = comparison_images(name, data, **pictures)
            description = images.description
            make_inputs = partial(_examples, _arrays(list(images.batches)))
            further = range(1, NORMAL_BATCHES + 1)
        return Opened(
            name=Path(name).name,
            model=name,
            precision=export.precision_of(graph),
            inputs=lambda batch: on_device(device, make_inputs(batch)),
            user_batches=lambda batch: [
                on_device(device, make_inputs(batch, number)) for number in further
            ],
            graph=graph,
            examples=description,
        )

    # A network of the course.
    if data is not None:
        raise LabError(
            "A network by its name is measured on random numbers.",
            expected="--data with ONNX files only",
            found=name,
            fix=f"labkit export {name}",
        )
    torch.manual_seed(0)
    network, _ = models.build(name)
    return Opened(
        name, network, "fp32", inputs=lambda batch: on_device(device, [models.example(name, batch)])
    )


def _arrays(batches):
    """Join batches of examples. Returns a list with one array for each input of the network.

    batches  a list of arrays (n, C, H, W); for a network of several inputs, of {name of an input:
             array}
    """
    if not isinstance(batches[0], dict):
        batches = [{"input": images} for images in batches]
    return [np.concatenate([arrays[name] for arrays in batches]) for name in batches[0]]


def _examples(arrays, batch, number=0):
    """Return one batch of examples: a tuple with a tensor for each input of the network.

    If there are too few examples, they are repeated.

    arrays  one array of examples for each input, as `_arrays` returns them
    batch   batch size
    number  index of the batch: 0 for the first examples, 1 for those that follow, and so on
    """
    tensors = []
    for examples in arrays:
        numbers = (number * batch + np.arange(batch)) % len(examples)
        tensors.append(torch.from_numpy(examples[numbers]))
    return tuple(tensors)


def on_device(device: torch.device | str, tensors: Iterable[torch.Tensor]) -> tuple:
    """Return the tensors of a batch on a device."""
    return tuple(tensor.to(device) for tensor in tensors)
