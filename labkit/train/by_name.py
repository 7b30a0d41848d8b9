"""Train a network by its name on a data set by its name, as `labkit train` does."""

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
    """A network, its data and a `TrainConfig`, ready to run.

    name     name of the checkpoint file and of the profile file, without ending
    network  the network to train
    train    the data to train on, a `labkit.data.ImageSet` or `TextSet` that fits the network
    test     the data to test on, of the same class
    config   a `TrainConfig`
    device   device to train on
    """

    name: str
    network: torch.nn.Module
    train: object
    test: Any
    config: object
    device: torch.device

    def run(self, *, resume=False, profile=None):
        """Train, and after each epoch test and write a checkpoint.

        While a training runs, its checkpoint is a file of the folder checkpoints/unfinished. When
        the training is done, that file replaces the checkpoint of an earlier training of the same
        name.

        resume   False: train from the start. True: continue the unfinished training of this name;
                 where there is none, continue the finished one
        profile  the profiler: "cprofile" for the whole training (its file opens with snakeviz),
                 "torch" for three steps (its file opens with ui.perfetto.dev); None: no profiler
        returns  (`History`, path of the checkpoint, path of the profile file or None)
        """
        done, unfinished = self._checkpoints()
        ending = "prof" if profile == "cprofile" else "json"
        profile_path = artifacts() / "profiles" / f"{self.name}.{ending}"
        if profile == "torch":
            profiling.profile(lambda: self.dry_run(_PROFILED_STEPS), calls=1).save_trace(
                profile_path
            )
        profiler = cProfile.Profile() if profile == "cprofile" else None

        # Train. The checkpoint of an earlier unfinished training is put aside, and comes back if
        # this training ends before its first epoch is saved.
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
        """Return (path of the finished training's checkpoint, path of an unfinished one's)."""
        done = artifacts() / "checkpoints" / f"{self.name}.pt"
        return done, done.with_name("unfinished") / done.name

    def checkpoint_to_resume(self) -> tuple | None:
        """Return (path, time of writing in ns) of the checkpoint that `run(resume=True)` continues.

        Returns None where there is no checkpoint.
        """
        for path in reversed(self._checkpoints()):
            if path.exists():
                return path, path.stat().st_mtime_ns
        return None

    def remarks(self):
        """Yield sentences on side effects that the switches have on this network."""
        config = self.config
        # with either switch, batch norm does not depend on the parts of a batch
        unaffected = config.head_only or config.ghost_size
        if config.accumulate > 1 and batch_norms(self.network) and not unaffected:
            images_at_once = config.batch // config.accumulate
            yield (
                f"The network has batch norm, which sees {images_at_once} images at a time: the "
                "step is not that of "
                f"a whole batch of {config.batch}, but that of --ghost-size {images_at_once}."
            )

    def dry_run(self, steps=1):
        """Train a copy of the network for some steps of the first epoch, and write nothing.

        Returns the `History`.
        """
        images = self.train.subset(steps * self.config.batch)
        # settings that change from epoch to epoch get their value of the first epoch
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
    """Free the name of a file for the `with` block, which may write a new file under this name.

    The old file is moved aside, and deleted at the end. It is moved back if the block wrote no new
    file.
    """
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
    """Build a network and load a data set by their names, and return a `Training`.

    limit   most images to train on, and also most images to test on; None: all
    name    distinguishes the files of this training from others of the same network and data set
    Raises  LabError for a name that no file can have, and where network and data set do not fit
    """
    if name is not None and not re.fullmatch(r"[\w-]+", name):
        raise LabError(
            "This name cannot be part of a file's name.",
            expected="letters, digits, - and _",
            found=name,
        )
    # The images to train on, and to test on.
    # a folder's pictures may be of several sizes, and are resized when they are loaded
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
    train = _with_channels(train, model, shape)
    test = _with_channels(test, model, shape)

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
    """Return the pixels per side to which images are resized; None if they have the right size.

    model   name of the network
    shape   shape of the network's input, without the batch
    images  the training images, an `ImageSet`
    """
    recipe_side = models.recipe_of(model).shape[-1]
    if shape[-1] == recipe_side and shape[1:] == images.images.shape[2:]:
        return None
    return shape[-1]


def _with_channels(images, model, shape):
    """Return an `ImageSet` with as many channels as the network takes.

    A grey image is repeated in three channels.

    images  an `ImageSet` or a `TextSet`
    model   name of the network, for the error
    shape   shape of the network's input, without the batch
    Raises  LabError where the network reads images and the data set holds texts, or where the
            network reads texts and the data set holds images
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
