"""One network trained under many settings and several seeds, and how far the settings are apart.

Every training is a job of its own; on a CPU each runs in a process with one thread, as many at once as torch has
threads here, because small networks gain more from a core of their own than from a second thread.
"""

import copy
import time
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from torch.nn.functional import cross_entropy
from torch.nn.modules.batchnorm import _BatchNorm

from labkit.measure.stats import mean_interval, mean_ratio
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
    target  None: train for config.epochs; a number: until the loss on all training images is so low
    step    with a target: step(model, optimizer, images, labels), a training step
    hooks   of `tune_one`: {name: `labkit.methods.Hooks`} that take part, objects of this job alone
    loss    of `tune_one`: loss(logits, labels, images) to minimise, as in `fit`
    """

    name: str
    make: object
    config: TrainConfig
    data: tuple
    device: str = "cpu"
    target: float | None = None
    step: object = train_step
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


def run(settings, make, data, *, seeds, device="cpu", target=None, step=train_step):
    """Train every setting with every seed; a list of `Trained`, setting by setting.

    settings  {name: TrainConfig}; their own seed is replaced by each of `seeds`
    make      () -> network, a function of a module (not of a notebook): the worker processes must find it; or
              {seed: network}: go on with a copy of it, from the first epoch's order of the images
    data      (train, test), two ImageSets; test may be None
    step      of trainings with a target, a function of a module as well
    """
    job = Job(name="", make=make, config=TrainConfig(), data=data, device=str(device), target=target, step=step)
    makes = {seed: partial(copy.deepcopy, make[seed]) if isinstance(make, dict) else make for seed in seeds}
    seeded = [(name, replace(config, seed=seed)) for name, config in settings.items() for seed in seeds]
    jobs = [replace(job, name=name, make=makes[config.seed], config=config) for name, config in seeded]
    return work(_train_one, jobs, device)


def _train_one(job):
    """Train one network: a `Trained`. Batch norm's running statistics are taken anew at the end."""
    torch.manual_seed(job.config.seed)
    (train, _), network, begin = job.data, job.make().to(job.device), time.perf_counter()
    if job.target is None:
        steps, looks = fit(network, train, job.config, device=job.device).steps, ()
    else:
        steps, looks = _train_to_target(job, network)
    seconds = time.perf_counter() - begin
    loss = _loss(network, train, job.device)  # before the test, which leaves the running statistics as they should be
    return Trained(
        job.name,
        job.config.seed,
        accuracy=_tested(network, job),
        loss=loss,
        steps=steps,
        epochs=steps / (len(train) // job.config.batch),
        seconds=seconds,
        model=_plain(network),
        looks=looks,
    )


def tune_one(job):
    """Train one network with hooks and a loss of its own: a `Trained`, whose loss is that of the last step, which
    saves a short training a look at the whole set. Batch norm's running statistics are taken anew at the end."""
    torch.manual_seed(job.config.seed)
    (train, test), network = job.data, job.make()
    history = fit(network, train, job.config, device=job.device, hooks=job.hooks, loss=job.loss)
    update_batch_norm(network, train, job.device)
    return Trained(
        job.name,
        job.config.seed,
        accuracy=np.nan if test is None else 100 * accuracy(network, test, device=job.device),
        loss=history.losses[-1],
        steps=history.steps,
        epochs=job.config.epochs,
        seconds=history.seconds,
        model=_plain(network),
    )


def _train_to_target(job, network):
    """Train at a constant rate until the loss on all training images is the target, or for config.epochs: (steps,
    looks) as in `Trained`."""
    config, (train, test), device = job.config, job.data, job.device
    network.to(memory_format=torch.channels_last if config.channels_last else torch.preserve_format)
    rates = {"lr": config.learning_rate, "momentum": config.momentum, "weight_decay": config.weight_decay}
    optimizer, looks, steps, due, last = torch.optim.SGD(network.parameters(), **rates), [], 0, 1, (0, np.inf)
    for epoch in range(config.epochs):
        for batch in train.batches(config.batch, device=device, seed=config.seed + epoch, drop_last=True):
            network.train()
            job.step(network, optimizer, *batch)
            steps += 1
            milestone = steps == 2 ** len(looks) and test is not None
            if steps < due and not milestone:
                continue
            due, loss = max(steps + 1, int(_OFTEN * steps)), _loss(network, train, device)
            if milestone:
                tested, model = _tested(network, job), _plain(copy.deepcopy(network))
                looks.append(Look(steps, steps * config.batch / len(train), loss, tested, model))
            if loss <= job.target:
                return _crossing(last, (steps, loss), job.target), tuple(looks)
            last = steps, loss
    return np.nan, tuple(looks)


def _plain(network):
    """The network on the CPU, its weights laid out so that they can be written as one vector."""
    return network.cpu().to(memory_format=torch.contiguous_format)


def _crossing(before, after, target):
    """The step where the loss was `target`, by a straight line between two (step, loss)."""
    (first, high), (last, low) = before, after
    return last if np.isinf(high) else first + (last - first) * (high - target) / (high - low)


@torch.no_grad()
def _loss(network, data, device):
    """Mean loss of a network on a set, batch norm with the statistics of its chunks (which moves the running ones)."""
    network.eval()
    for layer in network.modules():
        if isinstance(layer, _BatchNorm):
            layer.train()
    batches = data.batches(_CHUNK, device=device)
    return sum(float(cross_entropy(network(x), y)) * len(y) for x, y in batches) / len(data)


def _tested(network, job):
    """Accuracy in percent on the test images of a job, with batch norm's statistics taken anew; NaN without images."""
    train, test = job.data
    if test is None:
        return np.nan
    update_batch_norm(network, train, job.device)
    return 100 * accuracy(network, test, device=job.device)


def update_batch_norm(network, train, device):
    """Take the running statistics of batch norm anew, as plain means over `train`.

    They are moving averages that forget within some dozens of steps. A large batch takes few steps, and would be
    tested with the statistics of weights long gone.
    """
    images = (batch for batch, _ in train.batches(_CHUNK, device=device))
    torch.optim.swa_utils.update_bn(images, network)


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
