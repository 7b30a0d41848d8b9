"""A whole training from names: what `labkit train` does."""

import copy
import cProfile
import re
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch

from labkit import device as devices
from labkit import models
from labkit.data import load
from labkit.errors import LabError
from labkit.files import artifacts, atomic
from labkit.measure import profiling
from labkit.train.loop import fit

if TYPE_CHECKING:
    from labkit.train.config import TrainConfig

_PROFILED_STEPS = 3  # of torch's profiler, whose file grows by megabytes per step


@dataclass(frozen=True, kw_only=True)
class Training:
    """A network, its data and how to train it, ready to run.

    train, test  ImageSets that fit the network
    """

    name: str
    network: torch.nn.Module
    train: object
    test: Any
    config: object
    device: torch.device

    def run(self, *, resume=False, profile=None):
        """Train, checkpoint and test after each epoch: (History, path of the checkpoint, path of the profile or None).

        resume   go on from the checkpoint of the same name; else it is replaced
        profile  "cprofile": of the whole training, for snakeviz; "torch": of three steps, for ui.perfetto.dev
        """
        checkpoint = artifacts() / "checkpoints" / f"{self.name}.pt"
        if not resume:
            checkpoint.unlink(missing_ok=True)
        file = artifacts() / "profiles" / f"{self.name}.{'prof' if profile == 'cprofile' else 'json'}"
        if profile == "torch":
            profiling.profile(lambda: self.dry_run(_PROFILED_STEPS), calls=1).save_trace(file)
        profiler = cProfile.Profile() if profile == "cprofile" else None
        with profiler or nullcontext():
            data = (self.train, self.test)
            history = fit(self.network, data, self.config, device=self.device, checkpoint=checkpoint)
        if profiler:
            with atomic(file) as temporary:
                profiler.dump_stats(temporary)
        return history, checkpoint, file if profile else None

    def dry_run(self, steps=1):
        """Train a copy for so many steps, and write nothing."""
        few = self.train.subset(steps * self.config.batch)
        once = replace(self.config, epochs=1)
        return fit(copy.deepcopy(self.network), few, once, device=self.device)


def training(
    model: str, dataset: str, config: "TrainConfig", *, limit: int | None = None, name: str | None = None
) -> Training:
    """Build a network by name for a data set by name: a `Training`.

    limit  take only so many training images, and at most as many to test on
    name   keeps its files apart from those of other trainings of this network on this set
    """
    if name is not None and not re.fullmatch(r"[\w-]+", name):
        raise LabError("This name cannot be part of a file's name.", expected="letters, digits, - and _", found=name)
    size = config.size if dataset.startswith("folder:") else None  # its pictures may be of several sizes
    train = load(dataset, "train", limit=limit, size=size)
    if len(train.classes) < 2:
        raise LabError(
            f"{dataset} has no classes to learn.",
            expected="a folder per class, two or more",
            found=f"{len(train):,} pictures of one kind",
            fix="sort them into folders named by what they show",
        )
    test = load(dataset, "test", size=size)
    test = test.subset(min(limit, len(test))) if limit else test
    torch.manual_seed(config.seed)
    like = tuple(train.images.shape[1:])
    network, shape = models.build(model, classes=len(train.classes), like=like, pretrained=config.pretrained)
    train, test = (_fitted(images, model, shape) for images in (train, test))
    known = models.recipe_of(model).shape[-1]  # to resize nothing, and say so, the set has to be of this size
    side = config.size or (None if shape[-1] == known and shape[1:] == train.images.shape[2:] else shape[-1])
    kept_as = f"{dataset.replace(':', '-').replace('/', '-')}-{model}" + (f".{name}" if name else "")
    config = replace(config, size=side)
    return Training(name=kept_as, network=network, train=train, test=test, config=config, device=devices.pick())


def _fitted(images, model, shape):
    """An ImageSet with the channels a network takes: grey images can stand in three channels alike."""
    found = tuple(images.images.shape[1:])
    if len(shape) != len(found) or (len(shape) == 1 and shape != found):
        kinds = {1: "texts", 3: "images"}
        raise LabError(
            f"{model} cannot be trained on {images.name}.",
            expected=f"{kinds[len(shape)]} {' x '.join(map(str, shape))}",
            found=f"{kinds[len(found)]} {' x '.join(map(str, found))}",
            fix="choose another --model",
        )
    if shape[0] == found[0]:
        return images
    return replace(images, images=images.images.expand(-1, 3, -1, -1), mean=images.mean * 3, std=images.std * 3)
