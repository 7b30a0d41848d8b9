"""One network trained under many settings and several seeds, how far the settings are apart, and how flat they end.

Every training is a job of its own; on a CPU each runs in a process with one thread, as many at once as torch has
threads here, because small networks gain more from a core of their own than from a second thread.
"""

import time
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import numpy as np
import torch

from labkit.landscape import Landscape, sharpness, top_eigenvalue
from labkit.measure.stats import mean_interval
from labkit.train.config import TrainConfig
from labkit.train.loop import accuracy, fit, train_step
from labkit.train.workers import work

_CHUNK = 512  # images at once where batch norm's statistics are taken
_LOOK = 1.3  # a training is asked for its loss when the mean loss of its steps is within this factor of the target


@dataclass(frozen=True, kw_only=True)
class Job:
    """One training.

    name    of the setting
    make    () -> network; called after torch is seeded
    config  a TrainConfig; its seed seeds the weights and the order of the images
    data    (images to train on, images to test on)
    device  where
    target  None: train for config.epochs; a number: until the loss on all training images is so low
    hooks   of `tune_one`: {name: `labkit.methods.Hooks`} that take part, objects of this job alone
    loss    of `tune_one`: loss(logits, labels, images) to minimise, as in `fit`
    """

    name: str
    make: object
    config: TrainConfig
    data: tuple
    device: str = "cpu"
    target: float | None = None
    hooks: dict | None = None
    loss: object = None


class Trained(NamedTuple):
    """What came out: accuracies in percent of the test images, losses in nats per image of the training set."""

    name: str
    seed: int
    accuracy: float
    loss: float
    steps: int
    epochs: int
    seconds: float
    model: torch.nn.Module


class Flatness(NamedTuple):
    """sharpness: in the box of `labkit.landscape.sharpness`; eigenvalue: the largest of the Hessian;
    length: of the vector of all weights that have filters, so without biases and batch norm."""

    name: str
    seed: int
    sharpness: float
    eigenvalue: float
    length: float


def run(settings, make, data, *, seeds, device="cpu", target=None):
    """Train every setting with every seed; a list of `Trained`, setting by setting.

    settings  {name: TrainConfig}; their own seed is replaced by 0, 1, ... seeds - 1
    make      () -> network, a function of a module (not of a notebook): the worker processes must find it
    data      (train, test), two ImageSets
    """
    job = Job(name="", make=make, config=TrainConfig(), data=data, device=str(device), target=target)
    seeded = [(name, replace(config, seed=seed)) for name, config in settings.items() for seed in range(seeds)]
    return work(train_one, [replace(job, name=name, config=config) for name, config in seeded], device)


def train_one(job):
    """Train one network: a `Trained`. Batch norm's running statistics are taken anew at the end."""
    torch.manual_seed(job.config.seed)
    (train, test), network, begin = job.data, job.make().to(job.device), time.perf_counter()
    if job.target is None:
        steps, epochs = fit(network, train, job.config, device=job.device).steps, job.config.epochs
    else:
        steps, epochs = _train_to(job.target, network, train, job.config, device=job.device)
    seconds = time.perf_counter() - begin
    update_batch_norm(network, train, job.device)
    return Trained(
        job.name,
        job.config.seed,
        accuracy=100 * accuracy(network, test, device=job.device),
        loss=_loss(network, train, job.device),
        steps=steps,
        epochs=epochs,
        seconds=seconds,
        model=network.cpu(),
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
        accuracy=100 * accuracy(network, test, device=job.device),
        loss=history.losses[-1],
        steps=history.steps,
        epochs=job.config.epochs,
        seconds=history.seconds,
        model=network.cpu().to(memory_format=torch.contiguous_format),
    )


def _train_to(target, network, train, config, *, device):
    """Train with momentum at a constant rate until the loss on all of `train` is at most `target`, or for
    config.epochs; returns (steps, epochs)."""
    rates = {"lr": config.learning_rate, "momentum": config.momentum, "weight_decay": config.weight_decay}
    optimizer, steps = torch.optim.SGD(network.parameters(), **rates), 0
    for epoch in range(config.epochs):
        network.train()
        batches = train.batches(config.batch, device=device, seed=config.seed + epoch, drop_last=True)
        losses = torch.stack([train_step(network, optimizer, *batch) for batch in batches])
        steps += len(losses)
        if losses.mean() <= _LOOK * target and _loss(network, train, device) <= target:
            break
    return steps, epoch + 1


def _loss(network, data, device):
    """Mean loss of a network on a set, batch norm with the statistics of its chunks."""
    return Landscape.of(network, data, device=device, batch=_CHUNK).loss()


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


def flatness(trained, data, *, epsilon=1e-3, device="cpu"):
    """How flat the loss on `data` is around each of the solutions: a list of `Flatness`, in the same order."""
    return work(partial(_flatness_of, data=data, epsilon=epsilon, device=str(device)), trained, device)


def _flatness_of(each, *, data, epsilon, device):
    view = Landscape.of(each.model, data, device=device)
    filters = [weight.norm() for weight in view.split(view.weights).values() if weight.dim() > 1]
    steepest, length = top_eigenvalue(view, tolerance=1e-2).value, float(torch.stack(filters).norm())
    return Flatness(each.name, each.seed, sharpness(view, epsilon=epsilon).value, steepest, length)


def values(trained, name, what="accuracy"):
    """(seeds,) of one setting, in the order of the seeds."""
    found = sorted((each.seed, getattr(each, what)) for each in trained if each.name == name)
    return np.array([value for _, value in found])


def difference(trained, name, other, what="accuracy"):
    """`name` minus `other`, seed by seed (the same seed begins with the same weights): an `Interval`."""
    return mean_interval(values(trained, name, what) - values(trained, other, what))


def ratio(found, name, other, what):
    """`name` over `other`, seed by seed: the geometric mean and its 95 % interval, an `Interval`."""
    logs = mean_interval(np.log(values(found, name, what)) - np.log(values(found, other, what)))
    low, high, middle = (float(np.exp(min(log, 700))) for log in (logs.low, logs.high, logs.median))
    return replace(logs, low=low, high=high, median=middle)
