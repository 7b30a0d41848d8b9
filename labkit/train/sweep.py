"""Train many small networks in parallel: `labkit.train.workers.work(tune_one, jobs)`.

On a CPU each training runs in a process with one thread, and as many processes run at once as torch
has threads here. Small networks gain more from a core of their own than from a second thread.
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

_CHUNK = 512  # images per batch when batch norm's statistics are recomputed


@dataclass(frozen=True, kw_only=True)
class Job:
    """One training.

    name    name of the setting
    make    function () -> network. It is a function of a module, not of a notebook, so that the
            worker processes can import it. It is called after torch is seeded
    config  a `TrainConfig`; its seed seeds the weights and the order of the images
    data    (images to train on, images to test on or None)
    device  device to train on
    hooks   {name: `labkit.methods.Hooks`} that take part; no other job may have the same objects
    loss    function (logits, labels, images) -> loss to minimise; None: cross-entropy
    """

    name: str
    make: Callable
    config: TrainConfig
    data: tuple
    device: str = "cpu"
    hooks: dict | None = None
    loss: object = None


class Trained(NamedTuple):
    """The result of one training.

    name      name of the setting
    seed      seed of the training
    accuracy  percent of the test images that are classified correctly; NaN without a test set
    loss      mean cross-entropy over the training images at the end, in nats
    steps     number of steps
    model     the trained network, on the CPU
    """

    name: str
    seed: int
    accuracy: float
    loss: float
    steps: int
    model: torch.nn.Module


def tune_one(job: Job) -> Trained:
    """Train the network of one `Job`, and return a `Trained`.

    The model of the result is the average of the weights where the config asks for one (`ema`).
    Batch norm's running statistics are recomputed at the end. The model is on the CPU, with
    contiguous weights, so that they can be flattened to one vector.
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
    """Recompute batch norm's running statistics as plain means over `train`.

    In training they are moving averages, which follow the weights within some dozens of steps. A
    training with large batches has few steps, so its statistics at the end would belong to earlier
    weights.

    train    a `labkit.data.ImageSet`
    returns  the mean cross-entropy over `train`, in nats
    """
    batches = train.batches(_CHUNK, device=device)
    with statistics_anew(network):
        return sum(float(cross_entropy(network(x), y)) * len(y) for x, y in batches) / len(train)


def halved(data: Any) -> Any:
    """Return the `ImageSet` with images of half the side: each pixel is the mean of four.

    A network needs a quarter of the computation for them.
    """
    small = torch.nn.functional.avg_pool2d(data.images.float(), 2).round().to(torch.uint8)
    return replace(data, images=small)


def values(trainings: Sequence[Trained], name: str, field: str = "accuracy") -> np.ndarray:
    """Return one field of the trainings of a setting: (seeds,), in ascending order of the seeds.

    name   name of the setting
    field  a field of `Trained`
    """
    pairs = sorted(
        (training.seed, getattr(training, field)) for training in trainings if training.name == name
    )
    return np.array([value for _, value in pairs])
