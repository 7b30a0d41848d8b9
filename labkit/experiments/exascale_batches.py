"""Batches of 16,384 and 32,768 against 64: SGD, LARS, and plain SGD with a schedule that rises,
stays and falls.

The small network of the lesson on large batches learns 32,768 images of 14 x 14 pixels for 8
epochs: with a batch of 32,768 that is 8 steps. There is a row for each optimizer, schedule and
batch, with the mean accuracy of four seeds. Learning rates are those of the lesson: SGD 1/4 and 1,
LARS 0.2.

It takes about two minutes on one core, whatever `--minutes` says. `quick`: 4,096 images, batches of
2,048 and 4,096, one seed.

Source  the sizes: You et al. 2017, arXiv:1708.03888 and arXiv:1709.05011; the published table
        "exascale-batches"
"""

import math
import time
from typing import NamedTuple

import torch
from torch import nn
from torch.nn import functional as F
from torch.optim.lr_scheduler import LambdaLR
from torch.optim.swa_utils import update_bn

from labkit.data import small_images
from labkit.ledger.rows import Training
from labkit.methods.lars import LARS, without_vectors

MINUTES = 2
EPOCHS = 8
STUDY = "exascale-batches"


class Setting(NamedTuple):
    """An optimizer with its learning rate and its schedule.

    optimizer  function (params, lr) -> optimizer
    schedule   function (step, steps) -> factor of the learning rate
    """

    name: str
    optimizer: object
    learning_rate: float
    schedule: object


def measure(scale):
    """Yield a `Training` for each setting and batch. Its accuracy is the mean over the seeds."""
    images, labels = _images_and_labels("train", scale, _count(scale))
    test = _images_and_labels("test", scale)
    seeds = (100,) if scale.quick else (100, 101, 102, 103)
    for setting, batch in _plan(len(images)):
        start = time.perf_counter()
        accuracies = [
            _train((images, labels), test, setting, batch=batch, seed=seed) for seed in seeds
        ]
        yield Training(
            study=STUDY,
            variant=f"{setting.name}, batch {batch:,}",
            model="three linear layers with batch norm",
            dataset=f"fashion-mnist, {len(images):,} images of 14 x 14",
            device=str(scale.device),
            images=EPOCHS * len(images) * len(seeds),
            total_s=time.perf_counter() - start,
            accuracy=sum(accuracies) / len(seeds),
        )


def _count(scale):
    """Return the number of training images."""
    return 4_096 if scale.quick else 32_768


def _images_and_labels(split, scale, count=None):
    """Return (images, labels) of a split on the device of the experiment.

    split  "train" or "test"
    count  take the first so many images; None: all
    """
    images, labels = small_images("fashion-mnist", split, count)
    return images.to(scale.device), labels.to(scale.device)


def _plan(count):
    """Return the trainings to measure, as [(`Setting`, batch size)].

    The baseline has a batch of 64. The others have half of all images, or all of them.

    count  number of training images
    """
    same_rate = Setting("SGD, same learning rate", torch.optim.SGD, 1 / 4, cosine)
    settings = [
        same_rate,
        Setting("SGD, learning rate 1", torch.optim.SGD, 1.0, cosine),
        Setting("LARS", lars, 0.2, cosine),
        Setting("SGD, a schedule", torch.optim.SGD, 1.0, rise_stay_fall),
    ]
    plan = [(same_rate, 64)]
    for batch in (count // 2, count):
        plan += [(setting, batch) for setting in settings]
    return plan


def lars(params, lr):
    """Return the LARS of the lesson: without momentum, and with a trust coefficient of 1.

    The learning rate takes the place of the trust coefficient.
    """
    named_weights = [(str(number), weight) for number, weight in enumerate(params)]
    return LARS(without_vectors(named_weights), lr, momentum=0.0, trust=1.0)


def cosine(step, steps):
    """Return a factor that falls from 1 to 0 along half a cosine."""
    return (1 + math.cos(math.pi * step / steps)) / 2


def rise_stay_fall(step, steps):
    """Return a factor of the learning rate that rises, stays at 1, and falls to 0.

    It rises for a tenth of the steps, and falls in their second half.
    """
    progress = step / steps
    if progress < 0.1:
        return (step + 1) / (0.1 * steps + 1)
    if progress < 0.5:
        return 1.0
    return 2 * (1 - progress)


def _train(data, test, setting, *, batch, seed):
    """Train one network. Returns the fraction of the test images that it classifies correctly."""
    images, labels = data
    test_images, test_labels = test
    torch.manual_seed(seed)
    network = _build().to(images.device)
    optimizer = setting.optimizer(network.parameters(), lr=setting.learning_rate)
    steps = EPOCHS * len(images) // batch
    scheduler = LambdaLR(optimizer, lambda step: setting.schedule(step, steps))

    # The batches of an epoch are drawn on the device of the images.
    for _ in range(EPOCHS):
        for rows in torch.randperm(len(images), device=images.device).split(batch):
            loss = F.cross_entropy(network(images[rows]), labels[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            scheduler.step()

    # Batch norm takes its averages from all training images.
    update_bn(images.split(4_096), network)
    with torch.no_grad():
        correct = network.eval()(test_images).argmax(1) == test_labels
    return correct.float().mean().item()


def _build():
    """Return the untrained network: three linear layers with batch norm."""
    return nn.Sequential(
        nn.Linear(196, 32),
        nn.BatchNorm1d(32),
        nn.ReLU(),
        nn.Linear(32, 32),
        nn.BatchNorm1d(32),
        nn.ReLU(),
        nn.Linear(32, 10),
    )
