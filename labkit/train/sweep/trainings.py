"""One network trained under many settings and seeds."""

import time
from dataclasses import dataclass, replace

import torch

from labkit.landscape import Landscape
from labkit.train import TrainConfig, accuracy, fit, train_step
from labkit.train.workers import work

CHUNK = 512  # images at once where batch norm's statistics are taken
LOOK = 1.3  # a training is asked for its loss when the mean loss of its steps is within this factor of the target


@dataclass(frozen=True, kw_only=True)
class Job:
    """One training.

    name    of the setting
    make    () -> network; called after torch is seeded
    config  a TrainConfig; its seed seeds the weights and the order of the images
    data    (images to train on, images to test on)
    device  where
    target  None: train for config.epochs; a number: until the loss on all training images is so low
    """

    name: str
    make: object
    config: TrainConfig
    data: tuple
    device: str = "cpu"
    target: float | None = None


@dataclass(frozen=True, kw_only=True)
class Trained:
    """What came out: accuracies in percent of the test images, losses in nats per image of the training set."""

    name: str
    seed: int
    accuracy: float
    loss: float
    steps: int
    epochs: int
    seconds: float
    model: torch.nn.Module


def run(settings, make, data, *, seeds, device="cpu", target=None):
    """Train every setting with every seed; a list of `Trained`, setting by setting.

    settings  {name: TrainConfig}; their own seed is replaced by 0, 1, ... seeds - 1
    make      () -> network, a function of a module (not of a notebook): the worker processes must find it
    data      (train, test), two ImageSets
    """
    common = {"make": make, "data": data, "device": str(device), "target": target}
    jobs = [
        Job(name=name, config=replace(config, seed=seed), **common)
        for name, config in settings.items()
        for seed in range(seeds)
    ]
    return work(train_one, jobs, device)


def train_one(job):
    """Train one network: a `Trained`. Batch norm's running statistics are taken anew at the end."""
    torch.manual_seed(job.config.seed)
    (train, test), network, begin = job.data, job.make().to(job.device), time.perf_counter()
    if job.target is None:
        steps, epochs = fit(network, train, job.config, device=job.device).steps, job.config.epochs
    else:
        steps, epochs = until(network, train, job.config, target=job.target, device=job.device)
    seconds = time.perf_counter() - begin
    settle(network, train, job.device)
    return Trained(
        name=job.name,
        seed=job.config.seed,
        accuracy=100 * accuracy(network, test, device=job.device),
        loss=loss_of(network, train, job.device),
        steps=steps,
        epochs=epochs,
        seconds=seconds,
        model=network.cpu(),
    )


def until(network, train, config, *, target, device):
    """Train with momentum at a constant rate until the loss on all of `train` is at most `target`, or for
    config.epochs; returns (steps, epochs)."""
    rates = {"lr": config.learning_rate, "momentum": config.momentum, "weight_decay": config.weight_decay}
    optimizer, steps = torch.optim.SGD(network.parameters(), **rates), 0
    for epoch in range(config.epochs):
        network.train()
        batches = train.batches(config.batch, device=device, seed=config.seed + epoch, drop_last=True)
        losses = torch.stack([train_step(network, optimizer, *batch) for batch in batches])
        steps += len(losses)
        if losses.mean() <= LOOK * target and loss_of(network, train, device) <= target:
            break
    return steps, epoch + 1


def loss_of(network, data, device):
    """Mean loss of a network on a set, batch norm with the statistics of its chunks."""
    return Landscape.of(network, data, device=device, batch=CHUNK).loss()


def settle(network, train, device):
    """Take the running statistics of batch norm anew, as plain means over `train`.

    They are moving averages that forget within some dozens of steps. A large batch takes few steps, and would be
    tested with the statistics of weights long gone.
    """
    images = (batch for batch, _ in train.batches(CHUNK, device=device))
    torch.optim.swa_utils.update_bn(images, network)


def halved(data):
    """The set with images of half the side, each pixel the mean of four: a quarter of the work."""
    small = torch.nn.functional.avg_pool2d(data.images.float(), 2).round().to(torch.uint8)
    return replace(data, images=small)
