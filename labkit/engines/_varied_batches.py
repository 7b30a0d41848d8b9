"""Batches of other numbers than those of a measurement: an answer that does not vary with them
shows nothing about an engine.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from labkit.export.inputs import varied_inputs

NORMAL_BATCHES = 7  # further ones of normal numbers: each output should vary with one of them
SIZES = (0.1, 10.0, 100.0)  # then of other sizes


def made_up_batches(model: Any, inputs: tuple) -> Iterator[tuple]:
    """Yield the made-up examples that `labkit quantize` compares on where no data are given, in
    batches of the size of `inputs`.

    model   a ModelProto
    inputs  a batch: one tensor per input of the network
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
    """Return another batch of the same shapes: floats from 0 to 1, as of pictures; integers in
    reverse order.

    Where none of the tensors is another one by that, the first of them gets 0 and 1, which are
    tokens of any vocabulary.
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
    """Return another batch of the same shapes, nearly black: where many numbers are equal, their
    order may differ.

    Of floats all are 0 but about one of 32, from 0 to 1. Integers stay.
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
    """Yield more batches of the same shapes: normal numbers, then smaller and larger ones.

    Integers are those of the inputs in another order, then 0 and 1 by chance.
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
