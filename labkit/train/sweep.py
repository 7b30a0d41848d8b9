"""One network trained under many settings and several seeds, and how far the settings are apart.

Every training is a job of its own; on a CPU each runs in a process with one thread, as many at once as torch has
threads here, because small networks gain more from a core of their own than from a second thread.
"""

import copy
import time
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from torch.nn.functional import cross_entropy
from torch.nn.modules.batchnorm import _BatchNorm

from labkit.measure.stats import mean_interval, mean_ratio
from labkit.methods import Loss
from labkit.train.config import TrainConfig
from labkit.train.loop import accuracy, fit, train_step
from labkit.train.workers import work

_CHUNK = 512  # images at once where batch norm's statistics are taken
_OFTEN = 1.08  # by how much the number of steps grows from one look at the training loss to the next


@dataclass(frozen=True, kw_only=True)
class Job:
    """One training.

    name    of the setting
    make    () -> network; called after torch is seeded
    config  a TrainConfig; its seed seeds the weights and the order of the images
    data    (images to train on, images to test on); None for the latter: no test
    device  where
    target  None: train for config.epochs; a loss of all training images in nats: train to it, at a constant rate
    hooks   without a target: {name: `labkit.methods.Hooks`} that take part, objects of this job alone
    loss    without a target: loss(logits, labels, images) to minimise; None: cross-entropy
    """

    name: str
    make: object
    config: TrainConfig
    data: tuple
    device: str = "cpu"
    target: float | None = None
    hooks: dict | None = None
    loss: object = None


class Look(NamedTuple):
    """How a training with a target stood after so many steps: loss of all training images in nats, accuracy in
    percent of the test images (NaN without them), and a copy of the network."""

    steps: int
    epochs: float
    loss: float
    accuracy: float
    model: torch.nn.Module


class Trained(NamedTuple):
    """What came out: accuracies in percent of the test images, losses in nats per image of the training set.

    steps  of the optimizer; with a target the (fractional) step where the loss reached it, NaN if it never did
    looks  with a target and test images: a `Look` after 1, 2, 4, 8, 16, ... steps
    """

    name: str
    seed: int
    accuracy: float
    loss: float
    steps: float
    epochs: float
    seconds: float
    model: torch.nn.Module
    looks: tuple = ()


def run(settings, make, data, *, seeds, device="cpu", target=None):
    """Train every setting with every seed; a list of `Trained`, setting by setting.

    settings  {name: TrainConfig}; their own seed is replaced by each of `seeds`
    make      () -> network, a function of a module (not of a notebook): the worker processes must find it
    data      (train, test), two ImageSets; test may be None
    target    None, or a loss in nats at which a training ends
    """
    shared = {"make": make, "data": data, "device": str(device), "target": target}
    jobs = [
        Job(name=name, config=replace(config, seed=seed), **shared)
        for name, config in settings.items()
        for seed in seeds
    ]
    return work(tune_one, jobs, device)


def tune_one(job):
    """Train one network: a `Trained`. Batch norm's running statistics are taken anew at the end."""
    torch.manual_seed(job.config.seed)
    train, test = job.data
    network = job.make().to(job.device)
    begin = time.perf_counter()
    steps, looks = _train_for_epochs(job, network) if job.target is None else _train_to_target(job, network)
    seconds = time.perf_counter() - begin
    return Trained(
        job.name,
        job.config.seed,
        loss=update_batch_norm(network, train, job.device),
        accuracy=_percent_right(network, test, job.device),
        steps=steps,
        epochs=steps / (len(train) // job.config.batch),
        seconds=seconds,
        model=_plain(network),
        looks=looks,
    )


def _train_for_epochs(job, network):
    """(steps, no looks) of a training by `fit`."""
    hooks = {**(job.hooks or {}), "loss": Loss(job.loss)}
    history = fit(network, job.data[0], job.config, device=job.device, hooks=hooks)
    return history.steps, ()


def _train_to_target(job, network):
    """Train at a constant rate until the target, or for config.epochs: (steps, looks) as in `Trained`."""
    config, (train, test) = job.config, job.data
    network.to(memory_format=torch.channels_last if config.channels_last else torch.preserve_format)
    rates = {"lr": config.learning_rate, "momentum": config.momentum, "weight_decay": config.weight_decay}
    optimizer = torch.optim.SGD(network.parameters(), **rates)
    looks, due, before = [], 1, (0, np.inf)
    for step, batch in enumerate(_batches(train, config, job.device), start=1):
        network.train()
        train_step(network, optimizer, *batch)
        milestone = step == 2 ** len(looks) and test is not None
        if step < due and not milestone:
            continue
        due = max(step + 1, int(_OFTEN * step))
        loss = update_batch_norm(network, train, job.device)
        if milestone:
            right, model = _percent_right(network, test, job.device), _plain(copy.deepcopy(network))
            looks.append(Look(step, step * config.batch / len(train), loss, right, model))
        if loss <= job.target:
            return _crossing(before, (step, loss), job.target), tuple(looks)
        before = step, loss
    return np.nan, tuple(looks)


def _batches(train, config, device):
    """(images, labels) of every step of a training."""
    for epoch in range(config.epochs):
        yield from train.batches(config.batch, device=device, seed=config.seed + epoch, drop_last=True)


def _plain(network):
    """The network on the CPU, its weights laid out so that they can be written as one vector."""
    return network.cpu().to(memory_format=torch.contiguous_format)


def _crossing(before, after, target):
    """The step where the loss was `target`, by a straight line between two (step, loss)."""
    (first, high), (last, low) = before, after
    return last if np.isinf(high) else first + (last - first) * (high - target) / (high - low)


def _percent_right(network, test, device):
    """Accuracy in percent of the test images; NaN without them."""
    return np.nan if test is None else 100 * accuracy(network, test, device=device)


@torch.no_grad()
def update_batch_norm(network, train, device):
    """Take the running statistics of batch norm anew, as plain means over `train`: the mean loss of that pass, in nats.

    They are moving averages that forget within some dozens of steps. A large batch takes few steps, and would be
    tested with the statistics of weights long gone.
    """
    was_training = network.training
    network.eval()
    norms = [layer for layer in network.modules() if isinstance(layer, _BatchNorm)]
    momenta = [layer.momentum for layer in norms]
    for layer in norms:
        layer.reset_running_stats()
        layer.train().momentum = None  # a plain mean
    batches = train.batches(_CHUNK, device=device)
    loss = sum(float(cross_entropy(network(x), y)) * len(y) for x, y in batches) / len(train)
    for layer, momentum in zip(norms, momenta, strict=True):
        layer.momentum = momentum
    network.train(was_training)
    return loss


def halved(data):
    """The set with images of half the side, each pixel the mean of four: a quarter of the work."""
    small = torch.nn.functional.avg_pool2d(data.images.float(), 2).round().to(torch.uint8)
    return replace(data, images=small)


def values(trained, name, what="accuracy"):
    """(seeds,) of one setting, in the order of the seeds."""
    found = sorted((each.seed, getattr(each, what)) for each in trained if each.name == name)
    return np.array([value for _, value in found])


def difference(trained, name, other, what="accuracy"):
    """`name` minus `other`, seed by seed (the same seed begins with the same weights): an `Interval`."""
    return mean_interval(values(trained, name, what) - values(trained, other, what))


def ratio(found, name, other, what):
    """`name` over `other`, seed by seed: the geometric mean and its 95 % interval, an `Interval`."""
    return mean_ratio(values(found, name, what), values(found, other, what))
