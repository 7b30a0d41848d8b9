"""A whole training from names: what `labkit train` does."""

import copy
import cProfile
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from labkit import device as devices
from labkit import models
from labkit.data import load
from labkit.errors import LabError
from labkit.files import artifacts, atomic
from labkit.train.loop import History, accuracy, fit

PROFILES = ("cprofile", "torch")
PROFILED_STEPS = 3  # of torch's profiler, whose file grows by megabytes a step


@dataclass(frozen=True, kw_only=True)
class Training:
    """A network, its data and how to train it, ready to run.

    train, test  ImageSets that fit the network
    """

    name: str
    network: torch.nn.Module
    train: object
    test: object
    config: object
    device: torch.device

    @property
    def idle(self):
        """{switch that is on: why it does nothing on this device}."""
        return self.config.idle(self.device)

    @property
    def checkpoint(self):
        """The path of the sidecar."""
        return artifacts() / "checkpoints" / f"{self.name}.json"

    def run(self, *, resume=False, profile=None):
        """Train, checkpoint after each epoch, and test: an `Outcome`.

        resume   go on from the checkpoint of the same name; else it is replaced
        profile  "cprofile": of the whole training, for snakeviz; "torch": of three steps, for ui.perfetto.dev
        """
        if not resume:
            self.checkpoint.unlink(missing_ok=True)
        work = {"device": self.device, "test": self.test, "checkpoint": self.checkpoint}
        file = artifacts() / "profiles" / f"{self.name}.{'prof' if profile == 'cprofile' else 'json'}"
        if profile == "torch":
            self.trace(file)
        profiler = cProfile.Profile()
        call = profiler.runcall if profile == "cprofile" else lambda fn, *args, **how: fn(*args, **how)
        history = call(fit, self.network, self.train, self.config, **work)
        if profile == "cprofile":
            with atomic(file) as temporary:
                profiler.dump_stats(temporary)
        right = history.accuracy[-1] if history.accuracy else accuracy(self.network, self.test, device=self.device)
        return Outcome(history, right, self.checkpoint, file if profile else None)

    def trace(self, file):
        """Write torch's profile of a few steps of a copy of the network."""
        from labkit.measure.profiling import profile

        few = self.train.subset(PROFILED_STEPS * self.config.batch)
        once = replace(self.config, epochs=1)
        profile(lambda: fit(copy.deepcopy(self.network), few, once, device=self.device), calls=1).save_trace(file)

    def dry_run(self):
        """Train a copy for one step, and write nothing."""
        once = replace(self.config, epochs=1)
        return fit(copy.deepcopy(self.network), self.train.subset(self.config.batch), once, device=self.device)


@dataclass(frozen=True)
class Outcome:
    """What a training left: `accuracy` from 0 to 1 on the test set, and paths (no profile unless asked for)."""

    history: History
    accuracy: float
    checkpoint: Path
    profile: Path | None


def training(model, dataset, config, *, limit=None):
    """Build a network by name for a data set by name: a `Training`.

    limit  take only so many training images, and at most as many to test on
    """
    train = load(dataset, "train", limit=limit)
    test = load(dataset, "test")
    test = test if limit is None or limit >= len(test) else test.subset(limit)
    torch.manual_seed(config.seed)
    network, shape = models.build(model, classes=len(train.classes))
    train, test = (fitted(images, model, shape) for images in (train, test))
    side = None if shape[1:] == tuple(train.images.shape[2:]) else shape[-1]
    name = f"{dataset.replace(':', '-').replace('/', '-')}-{model}"
    settings = {"config": replace(config, size=config.size or side), "device": devices.pick()}
    return Training(name=name, network=network, train=train, test=test, **settings)


def fitted(images, model, shape):
    """An ImageSet with the channels a network takes: grey images can stand in three channels alike."""
    channels = images.images.shape[1]
    if len(shape) == 3 and shape[0] == channels:
        return images
    if len(shape) == 3 and (channels, shape[0]) == (1, 3):
        threefold = {"mean": images.mean * 3, "std": images.std * 3}
        return replace(images, images=images.images.expand(-1, 3, -1, -1), **threefold)
    raise LabError(
        f"{model} cannot be trained on {images.name}.",
        expected=f"{shape[0]}-channel images" if len(shape) == 3 else "tokens",
        found=f"{channels}-channel images",
        fix="choose another --model or --dataset",
    )
