"""Train one small network with many seeds at once.

The weights of all networks are stacked, and each step moves them together.

    runs = train_many(build, (images, labels), range(64), test=(test_images, test_labels),
    learning_rate=0.01)
    runs.accuracy  # (64,) percent

For one seed this is the loop `train` of the lesson on comparing trainings: AdamW, a learning rate
of one cycle, a new random order in each epoch. One product of stacked matrices does the work of a
layer for all networks, so that PyTorch's price for each call is paid once. Networks with batch norm
or dropout are refused: train them in a loop (`labkit.train.repeat`). Do the same with convolutions,
which gain little here.
"""

import math
from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np
import torch
from torch import nn
from torch.func import functional_call, stack_module_state, vmap
from torch.nn import functional as F
from torch.optim.lr_scheduler import OneCycleLR

from labkit.errors import LabError
from labkit.train.repeat import Runs

AT_ONCE = 64  # networks; more at once save little and take memory
TEST_IMAGES = 2_000  # at once


class ManyRun(NamedTuple):
    """The result of one seed.

    accuracy  percent of the test images
    losses    (epochs,) mean loss of the batches of each epoch, in nats
    right     (test images,) True where the network names the class
    """

    accuracy: float
    losses: np.ndarray
    right: np.ndarray


def train_many(
    build: Callable[[], nn.Module],
    data: tuple[torch.Tensor, torch.Tensor],
    seeds: Iterable[int],
    *,
    test: tuple[torch.Tensor, torch.Tensor],
    learning_rate: float,
    epochs: int = 8,
    batch: int = 50,
) -> Runs:
    """Train a network once for each seed. Returns the `Runs`, whose members are `ManyRun`.

    build          () -> network, called after torch is seeded; all networks have the same shape
    data           images (n, ...) and labels (n,) to learn from
    seeds          each seed decides the first weights and the order of the images, as
                   `torch.manual_seed` does in a loop
    test           images and labels to be tested on
    learning_rate  the largest of the cycle
    Raises         LabError for a network with buffers (batch norm) or dropout
    """
    seeds = tuple(seeds)
    runs: list[ManyRun] = []
    for start in range(0, len(seeds), AT_ONCE):
        networks, orders = _begin(build, seeds[start : start + AT_ONCE], len(data[0]), epochs)
        weights, outputs = _stacked(networks)
        losses = _fit(weights, outputs, data, orders, learning_rate=learning_rate, batch=batch)
        right = _right(weights, outputs, *test).cpu().numpy()
        accuracies = 100 * right.mean(1)
        runs += map(ManyRun, accuracies.tolist(), losses.cpu().numpy(), right)
    return Runs(runs, seeds)


def _begin(build, seeds, images, epochs):
    """Return a network for each seed, and the orders of the images (seeds, epochs, images).

    Both are drawn as a loop over the seeds draws them.
    """
    networks = []
    orders = []
    for seed in seeds:
        torch.manual_seed(seed)
        networks.append(build())
        orders.append(torch.stack([torch.randperm(images) for _ in range(epochs)]))
    return networks, torch.stack(orders)


def _stacked(networks):
    """Return the weights of all networks, {name: (seeds, ...)}, and a function that runs them.

    The function is outputs(weights, images, shared=False) -> (seeds, n, classes). Images are
    (seeds, n, ...), or with shared=True (n, ...): the same for all networks.
    """
    _require_stackable(networks[0])
    weights, _ = stack_module_state(networks)
    network = networks[0]

    def output(weights_of_one, images):
        return functional_call(network, weights_of_one, (images,))

    def outputs(weights, images, *, shared=False):
        return vmap(output, in_dims=(0, None if shared else 0))(weights, images)

    return weights, outputs


def _require_stackable(network):
    """Raise LabError for a network with buffers or dropout."""
    dropout = [
        module for module in network.modules() if isinstance(module, nn.modules.dropout._DropoutNd)
    ]
    if not dropout and not list(network.buffers()):
        return
    raise LabError(
        "These networks cannot be trained side by side.",
        expected="layers that have weights only, such as nn.Linear and nn.Conv2d",
        found="a network with dropout"
        if dropout
        else "a network with buffers, such as batch norm's statistics",
        fix="train them one after the other: repeat(train, seeds) of labkit.train.repeat",
    )


def _fit(weights, outputs, data, orders, *, learning_rate, batch):
    """Train all networks, and return their losses (seeds, epochs)."""
    images, labels = data
    seeds, epochs, count = orders.shape
    optimizer = torch.optim.AdamW(weights.values(), learning_rate, fused=True)
    schedule = OneCycleLR(optimizer, learning_rate, total_steps=epochs * math.ceil(count / batch))
    losses = torch.zeros(seeds, epochs, device=images.device)
    for epoch in range(epochs):
        for rows in orders[:, epoch].to(images.device).split(batch, dim=1):
            logits = outputs(weights, images[rows]).flatten(0, 1)
            by_image = F.cross_entropy(logits, labels[rows].flatten(), reduction="none")
            by_seed = by_image.view(seeds, -1).mean(1)
            optimizer.zero_grad()
            by_seed.sum().backward()  # the sum: each network feels its own images only
            optimizer.step()
            schedule.step()
            losses[:, epoch] += by_seed.detach() * rows.shape[1] / count
    return losses


@torch.no_grad()
def _right(weights, outputs, images, labels):
    """Return (seeds, images): which test images each network gets right."""
    answers = []
    for chunk in images.split(TEST_IMAGES):
        answers.append(outputs(weights, chunk, shared=True).argmax(-1))
    return torch.cat(answers, dim=1) == labels
