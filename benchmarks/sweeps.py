"""Every setting with every seed, also to an equal training loss: what `large_batch.py` compares."""

import copy
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from torch.nn.functional import cross_entropy

from labkit.train.sweep import Job, Trained, trained, tune_one, update_batch_norm
from labkit.train.workers import work

OFTEN = 1.08  # by how much the number of steps grows from one look at the training loss to the next


class ToLoss(NamedTuple):
    """A training to a loss.

    end    its `steps` are the (fractional) step where the loss was reached, NaN if it never was
    looks  the networks after 1, 2, 4, 8, ... steps, where there are test images
    """

    end: Trained
    looks: tuple


def run(settings, make, data, *, seeds, target=None):
    """Train every setting with every seed: a list of `Trained`, or of `ToLoss` where there is a target.

    settings  {name: TrainConfig}; their own seed is replaced by each of `seeds`
    make      () -> network, a function of a module
    data      (train, test), two ImageSets; test may be None
    target    None, or a loss in nats at which a training ends, at a constant rate
    """
    jobs = [
        Job(name=name, config=replace(config, seed=seed), make=make, data=data)
        for name, config in settings.items()
        for seed in seeds
    ]
    return work(tune_one if target is None else partial(to_loss, target=target), jobs)


def to_loss(job, *, target):
    """Train at a constant rate until the loss of all training images is at most `target`: a `ToLoss`."""
    torch.manual_seed(job.config.seed)
    config, (train, test), network = job.config, job.data, job.make()
    rates = {"lr": config.learning_rate, "momentum": config.momentum, "weight_decay": config.weight_decay}
    optimizer = torch.optim.SGD(network.parameters(), **rates)
    looks, due, before, end = [], 1, (0, np.inf), np.nan
    for step, (x, y) in enumerate(batches(train, config), start=1):
        network.train()
        optimizer.zero_grad(set_to_none=True)
        cross_entropy(network(x), y).backward()
        optimizer.step()
        milestone = step == 2 ** len(looks) and test is not None
        if step < due and not milestone:
            continue
        due = max(step + 1, int(OFTEN * step))
        loss = update_batch_norm(network, train, job.device)
        if milestone:
            looks.append(copy.deepcopy(network).eval())
        if loss <= target:
            end = crossing(before, (step, loss), target)
            break
        before = step, loss
    return ToLoss(trained(job, network, end), tuple(looks))


def batches(train, config):
    """(images, labels) of every step of a training."""
    for epoch in range(config.epochs):
        yield from train.batches(config.batch, seed=config.seed + epoch, drop_last=True)


def crossing(before, after, target):
    """The step where the loss was `target`, by a straight line between two (step, loss)."""
    (first, high), (last, low) = before, after
    return last if np.isinf(high) else first + (last - first) * (high - target) / (high - low)
