"""A whole training from names: what `labkit train` does."""

import copy
import cProfile
import re
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch

from labkit import device as devices
from labkit import models
from labkit.data import load
from labkit.errors import LabError
from labkit.files import artifacts, atomic, publish
from labkit.measure import profiling
from labkit.train.loop import fit
from labkit.train.statistics import batch_norms

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
        """Train, checkpoint and test after each epoch. Returns (History, path of the checkpoint,
        that of the profile file).

        A training from the start is kept in checkpoints/unfinished, and takes the place of an
        earlier checkpoint of the same name when it is done.
        resume   go on from the unfinished training of that name, else from its checkpoint
        profile  the profiler: "cprofile" for the whole training (its file opens with snakeviz),
                 "torch" for three steps (ui.perfetto.dev); None: no file, and None in place of its
                 path
        """
        done, unfinished = self._checkpoints()
        ending = "prof" if profile == "cprofile" else "json"
        profile_path = artifacts() / "profiles" / f"{self.name}.{ending}"
        if profile == "torch":
            profiling.profile(lambda: self.dry_run(_PROFILED_STEPS), calls=1).save_trace(
                profile_path
            )
        profiler = cProfile.Profile() if profile == "cprofile" else None

        # train: an unfinished training of before is only put aside until the first epoch of this
        # one is kept
        checkpoint = done if resume and not unfinished.exists() else unfinished
        with nullcontext() if resume else _put_aside(unfinished), profiler or nullcontext():
            data = (self.train, self.test)
            history = fit(
                self.network, data, self.config, device=self.device, checkpoint=checkpoint
            )
        if checkpoint == unfinished:
            publish(unfinished, done)
        if profiler:
            with atomic(profile_path) as temporary:
                profiler.dump_stats(temporary)
        return history, done, profile_path if profile else None

    def _checkpoints(self):
        """Return the paths of the checkpoint of a training that is done, and of an unfinished
        one.
        """
        done = artifacts() / "checkpoints" / f"{self.name}.pt"
        return done, done.with_name("unfinished") / done.name

    def checkpoint_to_resume(self) -> tuple | None:
        """Return (path, time of writing) of the checkpoint that `run(resume=True)` would go on
        from; None where there is none.
        """
        for path in reversed(self._checkpoints()):
            if path.exists():
                return path, path.stat().st_mtime_ns
        return None

    def remarks(self):
        """Yield sentences on what these switches mean for this network."""
        config = self.config
        # parts change nothing of what batch norm sees
        unaffected = config.head_only or config.ghost_size
        if config.accumulate > 1 and batch_norms(self.network) and not unaffected:
            images_at_once = config.batch // config.accumulate
            yield (
                f"The network has batch norm, which sees {images_at_once} images at a time: the "
                "step is not that of "
                f"a whole batch of {config.batch}, but that of --ghost-size {images_at_once}."
            )

    def dry_run(self, steps=1):
        """Train a copy for so many steps of the first epoch, and write nothing."""
        images = self.train.subset(steps * self.config.batch)
        # what changes from epoch to epoch stays as it is in the first
        one_epoch = replace(
            self.config,
            epochs=1,
            warmup_epochs=min(self.config.warmup_epochs, 1),
            size=self.config.first_size or self.config.size,
            first_size=None,
        )
        return fit(copy.deepcopy(self.network), images, one_epoch, device=self.device)


@contextmanager
def _put_aside(path):
    """Move a file aside while another is made under its name; it comes back where none was made."""
    aside = path.with_suffix(".before")
    if path.exists():
        path.replace(aside)
    try:
        yield
    finally:
        if aside.exists() and not path.exists():
            aside.replace(path)
        aside.unlink(missing_ok=True)


def training(
    model: str,
    dataset: str,
    config: "TrainConfig",
    *,
    limit: int | None = None,
    name: str | None = None,
) -> Training:
    """Build a network by name for a data set by name. Returns a `Training`.

    limit  take only so many training images, and at most as many to test on
    name   keeps its files apart from those of other trainings of this network on this set
    """
    if name is not None and not re.fullmatch(r"[\w-]+", name):
        raise LabError(
            "This name cannot be part of a file's name.",
            expected="letters, digits, - and _",
            found=name,
        )
    # The images to train on, and to test on.
    # its pictures may be of several sizes
    size = config.size if dataset.startswith("folder:") else None
    train = load(dataset, "train", limit=limit, size=size)
    if len(train.classes) < 2:
        raise LabError(
            f"{dataset} has no classes to learn.",
            expected="a folder per class, two or more",
            found=f"{len(train):,} pictures of one kind",
            fix="sort them into folders named by what they show",
        )
    test = load(dataset, "test", size=size)
    if limit:
        test = test.subset(min(limit, len(test)))

    # The network, and the images in the channels that it takes.
    torch.manual_seed(config.seed)
    like = tuple(train.images.shape[1:])
    network, shape = models.build(
        model, classes=len(train.classes), like=like, pretrained=config.pretrained
    )
    train = _fitted(train, model, shape)
    test = _fitted(test, model, shape)

    # The name of its files.
    file_name = f"{dataset.replace(':', '-').replace('/', '-')}-{model}"
    if name:
        file_name += f".{name}"
    return Training(
        name=file_name,
        network=network,
        train=train,
        test=test,
        config=replace(config, size=config.size or _side(model, shape, train)),
        device=devices.pick(),
    )


def _side(model, shape, images):
    """Return the pixels a side that images are resized to; None, if they have the size of the
    network's recipe.
    """
    recipe_side = models.recipe_of(model).shape[-1]
    if shape[-1] == recipe_side and shape[1:] == images.images.shape[2:]:
        return None
    return shape[-1]


def _fitted(images, model, shape):
    """Return an ImageSet with the channels a network takes: grey images can stand in three
    channels alike.
    """
    image_shape = tuple(images.images.shape[1:])
    if len(shape) != len(image_shape) or (len(shape) == 1 and shape != image_shape):
        kinds = {1: "texts", 3: "images"}
        raise LabError(
            f"{model} cannot be trained on {images.name}.",
            expected=f"{kinds[len(shape)]} {' x '.join(map(str, shape))}",
            found=f"{kinds[len(image_shape)]} {' x '.join(map(str, image_shape))}",
            fix="choose another --model",
        )
    if shape[0] == image_shape[0]:
        return images
    return replace(
        images, images=images.images.expand(-1, 3, -1, -1), mean=images.mean * 3, std=images.std * 3
    )
