"""Make further batches, with other numbers than those of a measurement.

An engine's answers are compared with the right answers on several batches. On a single batch a
wrong engine might pass: if the right answer does not vary with the input, it shows nothing about
the engine.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from labkit.export.inputs import varied_inputs

NORMAL_BATCHES = 7  # further batches of normal numbers: each output should vary with one of them
SIZES = (0.1, 10.0, 100.0)  # standard deviations of the batches after these


def made_up_batches(model: Any, inputs: tuple) -> Iterator[tuple]:
    """Yield the made-up inputs of `varied_inputs`, arranged as batches of the size of `inputs`.

    `labkit quantize` compares on the same inputs if no data are given. The last batch is filled up
    with the first examples.

    model   a ModelProto
    inputs  a batch: one tensor for each input of the network
    """
    calls = varied_inputs(model)
    arrays = [np.concatenate([call[name] for call in calls]) for name in calls[0]]
    count = len(arrays[0])
    size = len(inputs[0])
    for begin in range(0, count, size):
        numbers: np.ndarray = np.arange(begin, begin + size) % count
        yield tuple(
            torch.from_numpy(array[numbers]).to(tensor.device)
            for array, tensor in zip(arrays, inputs, strict=True)
        )


def second_batch(inputs: tuple) -> tuple:
    """Return a batch of the same shapes as `inputs`, with other numbers.

    Floats are random from 0 to 1, like the pixels of pictures. Integers are those of `inputs` in
    reverse order. If neither changes any tensor, the first tensor is changed: 0 becomes 1, and
    every other number becomes 0. Both are tokens of any vocabulary.
    """
    generator = torch.Generator().manual_seed(1)
    batch = []
    for tensor in inputs:
        if tensor.is_floating_point():
            values = torch.rand(tensor.shape, generator=generator)
            batch.append(values.to(tensor.dtype).to(tensor.device))
        else:
            reverse = np.flip(tensor.cpu().numpy()).copy()
            batch.append(torch.from_numpy(reverse).to(tensor.device))
    if all(map(torch.equal, batch, inputs)):
        batch[0] = (inputs[0] == 0).to(inputs[0].dtype)
    return tuple(batch)


def dark_batch(inputs: tuple) -> tuple:
    """Return a batch of the same shapes as `inputs`, like pictures that are nearly black.

    One float in 32, on average, is random from 0 to 1. The others are 0. Integers are those of
    `inputs`. This batch finds engines that choose differently, or sort differently, among equal
    numbers.
    """
    generator = torch.Generator().manual_seed(2)
    dark = []
    for tensor in inputs:
        if tensor.is_floating_point():
            values = (32 * torch.rand(tensor.shape, generator=generator) - 31).clamp(min=0)
            tensor = values.to(tensor.dtype).to(tensor.device)
        dark.append(tensor)
    return tuple(dark)


def further_batches(inputs: tuple) -> Iterator[tuple]:
    """Yield further batches of the same shapes as `inputs`.

    The first `NORMAL_BATCHES` batches have floats from the standard normal distribution, and the
    integers of `inputs` in random order. Then comes a batch for each of `SIZES`: its floats are
    normal with this standard deviation, its integers are random zeros and ones.
    """
    generator = np.random.default_rng(3)
    for size in (*[1.0] * NORMAL_BATCHES, *SIZES):
        batch = []
        for tensor in inputs:
            if tensor.is_floating_point():
                values = size * generator.standard_normal(tuple(tensor.shape))
            elif size == 1:
                values = generator.permutation(tensor.cpu().numpy().reshape(-1))
            else:
                values = generator.integers(0, 2, tuple(tensor.shape))
            values = torch.from_numpy(np.asarray(values)).reshape(tensor.shape)
            batch.append(values.to(tensor.dtype).to(tensor.device))
        yield tuple(batch)
