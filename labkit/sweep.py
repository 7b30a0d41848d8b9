"""One network trained under many settings and several seeds, and how far the settings are apart.

Every training is a job of its own; on a CPU each runs in a process with one thread, as many at once as there are
cores, because small networks gain more from a core of their own than from a second thread.
"""

import functools
import math
import multiprocessing
import pickle
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import numpy as np
import torch

from labkit.device import usable_cores, using_threads
from labkit.landscape import Landscape, sharpness, top_eigenvalue
from labkit.train import TrainConfig, accuracy, fit, train_step
from labkit.train.progress import progress_bar

CHUNK = 512  # images at once where batch norm's statistics are taken
LOOK = 1.3  # a training is asked for its loss when the mean loss of its steps is within this factor of the target


class Interval(NamedTuple):
    """A mean and its 95 % interval."""

    mean: float
    low: float
    high: float

    def __str__(self):
        return f"{self.mean:.2f} [{self.low:.2f}, {self.high:.2f}]"


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


def work(task, jobs, device="cpu"):
    """[task(job) for job in jobs], side by side where that pays; `task` is a function of a module, or a partial."""
    side_by_side = min(usable_cores(), len(jobs))
    if str(device) != "cpu" or side_by_side < 2:
        return [task(job) for job in jobs]
    fresh = multiprocessing.get_context("spawn")  # a fork of a process that has run torch's threads may hang
    with ProcessPoolExecutor(side_by_side, mp_context=fresh) as pool, progress_bar(len(jobs), 0) as bar:
        # Pickled here, by value: torch would otherwise hand its tensors over as open files.
        waiting = {pool.submit(call, pickle.dumps((task, job))): place for place, job in enumerate(jobs)}
        found = {}
        for done in as_completed(waiting):
            found[waiting[done]] = pickle.loads(done.result())
            bar.update()
    return [found[place] for place in range(len(jobs))]


def call(pickled):
    """One job in a worker process, with one thread."""
    task, job = pickle.loads(pickled)
    with using_threads(1):
        return pickle.dumps(task(job))


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


class Flatness(NamedTuple):
    """sharpness: in the box of `labkit.landscape.sharpness`; eigenvalue: the largest of the Hessian;
    length: of the vector of all weights that have filters, so without biases and batch norm."""

    name: str
    seed: int
    sharpness: float
    eigenvalue: float
    length: float


def flatness(trained, data, *, epsilon=1e-3, device="cpu"):
    """How flat the loss on `data` is around each of the solutions: a list of `Flatness`, in the same order."""
    return work(partial(flatness_of, data=data, epsilon=epsilon, device=str(device)), trained, device)


def flatness_of(each, *, data, epsilon, device):
    view = Landscape.of(each.model, data, device=device)
    filters = [weight.norm() for weight in view.split(view.weights).values() if weight.dim() > 1]
    steepest = top_eigenvalue(view, tolerance=1e-2).value
    return Flatness(
        name=each.name,
        seed=each.seed,
        sharpness=sharpness(view, epsilon=epsilon).value,
        eigenvalue=steepest,
        length=float(torch.stack(filters).norm()),
    )


def halved(data):
    """The set with images of half the side, each pixel the mean of four: a quarter of the work."""
    small = torch.nn.functional.avg_pool2d(data.images.float(), 2).round().to(torch.uint8)
    return replace(data, images=small)


def mean_interval(values):
    """Mean of a few independent values and its 95 % interval by Student's t; endless for a single one."""
    values = np.asarray(values, dtype=float)
    middle, count = float(values.mean()), len(values)
    if count < 2:
        return Interval(middle, -math.inf, math.inf)
    reach = student_t(count - 1) * float(values.std(ddof=1)) / math.sqrt(count)
    return Interval(middle, middle - reach, middle + reach)


@functools.cache
def student_t(freedom):
    """The 0.975 quantile of Student's t: 12.71 for 1 degree of freedom, 2.78 for 4, 1.96 for many."""
    x = np.linspace(0, 20, 200_001)
    log_scale = math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2) - 0.5 * math.log(freedom * math.pi)
    density = np.exp(log_scale - (freedom + 1) / 2 * np.log1p(x**2 / freedom))
    mass = np.concatenate([[0], np.cumsum((density[1:] + density[:-1]) / 2) * (x[1] - x[0])])
    return float(np.interp(0.475, mass, x))


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
    return Interval(*(math.exp(min(value, 700)) for value in logs))
