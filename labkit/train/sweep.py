"""Trainings side by side.

Every training is a job of its own; on a CPU each runs in a process with one thread, as many at once
as torch has threads here, because small networks gain more from a core of their own than from a
second thread (`labkit.train.workers.work(tune_one, jobs)`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.nn.functional import cross_entropy

from labkit.methods import Loss
from labkit.train.config import TrainConfig
from labkit.train.loop import fit
from labkit.train.statistics import statistics_anew
from labkit.train.testing import accuracy

_CHUNK = 512  # images at once where batch norm's statistics are taken


@dataclass(frozen=True, kw_only=True)
class Job:
    """One training.

    name    of the setting
    make    () -> network, a function of a module (not of a notebook): the worker processes must
            find it; called after torch is seeded
    config  a TrainConfig; its seed seeds the weights and the order of the images
    data    (images to train on, images to test on); None for the latter: no test
    device  where
    hooks   {name: `labkit.methods.Hooks`} that take part, objects of this job alone
    loss    loss(logits, labels, images) to minimise; None: cross-entropy
    """

    name: str
    make: Callable
    config: TrainConfig
    data: tuple
    device: str = "cpu"
    hooks: dict | None = None
    loss: object = None


class Trained(NamedTuple):
    """What came out: accuracy in percent of the test images (NaN without them), loss in nats per
    training image.
    """

    name: str
    seed: int
    accuracy: float
    loss: float
    steps: int
    model: torch.nn.Module


def tune_one(job: Job) -> Trained:
    """Train one network. Returns a `Trained`, with an average of the weights where the config asks
    for one.

    Batch norm's running statistics are taken anew at the end. It comes back on the CPU, its weights
    laid out so that they can be written as one vector.
    """
    torch.manual_seed(job.config.seed)
    train, test = job.data
    network = job.make()
    hooks = {**(job.hooks or {}), "loss": Loss(job.loss)}
    history = fit(network, train, job.config, device=job.device, hooks=hooks)
    if history.model is not None:
        network = history.model
    loss = update_batch_norm(network, train, job.device)
    right = np.nan if test is None else 100 * accuracy(network, test, device=job.device)
    network = network.cpu().to(memory_format=torch.contiguous_format)
    return Trained(job.name, job.config.seed, right, loss, history.steps, network)


@torch.no_grad()
def update_batch_norm(network: torch.nn.Module, train: Any, device: torch.device) -> float:
    """Take the running statistics of batch norm anew, as plain means over `train`. Returns its mean
    loss, in nats.

    They are moving averages that forget within some dozens of steps. A large batch takes few steps,
    and would be tested with the statistics of weights long gone.
    """
    batches = train.batches(_CHUNK, device=device)
    with statistics_anew(network):
        return sum(float(cross_entropy(network(x), y)) * len(y) for x, y in batches) / len(train)


def halved(data: Any) -> Any:
    """Return the set with images of half the side, each pixel the mean of four: a quarter of the
    work.
    """
    small = torch.nn.functional.avg_pool2d(data.images.float(), 2).round().to(torch.uint8)
    return replace(data, images=small)


def values(trainings: Sequence[Trained], name: str, field: str = "accuracy") -> np.ndarray:
    """Return a field of the trainings of one setting: (seeds,), in the order of the seeds."""
    pairs = sorted(
        (training.seed, getattr(training, field)) for training in trainings if training.name == name
    )
    return np.array([value for _, value in pairs])
