"""Feed a training with the batches of each epoch, on the device."""

import tempfile
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader

from labkit.errors import DataError, LabError, Unavailable
from labkit.train.workers import SHORT_FOLDER


class Feed:
    """The batches of every epoch; `len` is the number of steps of an epoch.

    data    a `labkit.data.ImageSet`, or an object with `len` and a method like its `batches`
    config  a `TrainConfig`; with `workers` or `pin_memory` torch's DataLoader makes the batches
    device  where the batches are wanted
    Raises  DataError where there are fewer images than one batch has; LabError where the config
            lets images grow, but from a `first_size` that is not below the last size
    """

    def __init__(self, data, config, *, device):
        if len(data) < config.batch:
            raise DataError(
                f"{len(data)} images are fewer than one batch.",
                expected=f"at least {config.batch}",
                found=f"{len(data)}",
                fix="choose a smaller batch, or more images",
            )
        _require_growth(config, data)
        self.data = data
        self.config = config
        self.device = device
        # order of the images, which `epoch` replaces by (index, seed) pairs for the DataLoader
        self.order = list(range(len(data)))
        self.loader = None
        # the DataLoader makes batches of single images, as in most training scripts
        if config.workers is not None or config.pin_memory:
            self.loader = DataLoader(
                _SingleImages(data, config),
                batch_size=config.batch,
                sampler=self.order,
                num_workers=config.workers or 0,
                persistent_workers=bool(config.workers),
                pin_memory=config.pin_memory and device.type != "cpu",
                drop_last=True,
                # a generator of its own, so that the network's random numbers do not change
                generator=torch.Generator(),
            )

    def __len__(self):
        """Return the number of steps of an epoch; images that fill no batch are left out."""
        return len(self.data) // self.config.batch

    def epoch(self, number):
        """Return an iterator over the batches of an epoch.

        number   number of the epoch, from 0
        returns  (images, labels) pairs on the device: float32 (batch, C, H, W) and int64 (batch,).
                 With a `TextSet` both are int64 (batch, length)
        """
        config = self.config
        seed = epoch_seed(config.seed, number)
        if self.loader is None:
            return self.data.batches(
                config.batch,
                device=self.device,
                seed=seed,
                drop_last=True,
                augment=config.augment,
                size=self._side(number),
                channels_last=config.channels_last,
            )
        # the same order as in `data.batches`
        order = torch.randperm(len(self.data), generator=torch.Generator().manual_seed(seed))
        self.order[:] = [(index, seed) for index in order.tolist()]
        return self._loaded()

    def sides(self):
        """Return the set of all image sizes of the training, in pixels per side.

        The element None stands for the size that the data set has.
        """
        return {self._side(number) for number in range(self.config.epochs)}

    def _side(self, number):
        """Return the pixels per side of the images of an epoch; None: the data set's own size.

        number  number of the epoch, from 0
        """
        config = self.config
        return (
            side_of(config, number, self.data.images.shape[-1])
            if config.first_size
            else config.size
        )

    def _loaded(self):
        """Yield the DataLoader's batches on the device.

        From pinned memory the copy to a GPU runs in the background.

        Raises  Unavailable where the DataLoader's processes cannot hand over images on this system
        """
        layout = torch.channels_last if self.config.channels_last else torch.preserve_format
        try:
            for images, labels in self.loader:
                images = images.to(self.device, non_blocking=True, memory_format=layout)
                yield images, labels.to(self.device, non_blocking=True)
        except (OSError, RuntimeError) as error:
            if not isinstance(error, OSError) and "shared memory" not in str(error):
                raise
            if "AF_UNIX" in str(error):
                raise Unavailable(
                    "The processes that load images cannot be reached here.",
                    expected="a temporary folder with a short name: sockets lie in it",
                    found=f"{tempfile.gettempdir()}: {error}",
                    fix=f"load in this process (0 workers). Or: {SHORT_FOLDER}",
                ) from None
            raise Unavailable(
                "The processes that load images cannot hand them over here.",
                expected="room in the shared memory, /dev/shm",
                found=str(error).strip().splitlines()[-1],
                fix="load in this process (0 workers), or start the container with "
                "more shared memory",
            ) from None


def _require_growth(config, data):
    """Raise LabError where `first_size` is a number, but not below the size of the last epoch."""
    if config.first_size is None:
        return
    last = config.size or data.images.shape[-1]
    if config.first_size >= last:
        raise LabError(
            "The images would not grow.",
            expected=f"a first size below the last one, {last} pixels a side",
            found=f"{config.first_size} pixels a side in the first epoch",
            fix="choose a smaller first_size, a larger size, or leave first_size out",
        )


def epoch_seed(seed: int, epoch: int) -> int:
    """Return the seed of the order of the images in an epoch: a 32-bit hash of both numbers.

    The hash is numpy's SeedSequence.

    seed   seed of the training, at least 0
    epoch  number of the epoch, from 0

    Why not the sum of both numbers? With the sum, the second epoch of seed 0 would have the order
    of the first epoch of seed 1, so neighbouring seeds would not be independent. The effect on
    intervals over seeds is too small to be seen. It was measured with cnn-small, 2,000 images of
    fashion-mnist, 5 epochs of batch 64 at the defaults, and 48 seeds. The accuracies of
    neighbouring seeds correlate by 0.09 with the sum and by 0.15 with the hash; chance alone gives
    -0.30 to 0.27. The standard deviation of the accuracy is 1.4 points with the sum and 1.2 with
    the hash. Where all seeds have the same first weights, so that only the order differs, the
    correlations are -0.04 and -0.02, and the standard deviations 0.9 and 0.7 points.
    """
    return int(np.random.SeedSequence([seed, epoch]).generate_state(1)[0])


def side_of(config: Any, epoch: int, side_of_set: int) -> int:
    """Return the pixels per side of the images of an epoch.

    Without `first_size`, all epochs have the same size: `size` of the config, or `side_of_set`
    where `size` is None. With `first_size`, the images grow linearly from `first_size` in the first
    epoch to this size in the last.

    config       a `TrainConfig`
    epoch        number of the epoch, from 0
    side_of_set  pixels per side of the data set's own images
    """
    last = config.size or side_of_set
    if config.first_size is None:
        return last
    return round(config.first_size + (last - config.first_size) * epoch / (config.epochs - 1))


class _SingleImages:
    """Single images of an `ImageSet`, ready for a network, for torch's DataLoader."""

    def __init__(self, data, config):
        self.data = data
        self.config = config

    def __getitem__(self, index_and_seed):
        """Return (image, label) for a pair (index, seed).

        The image is float32 (C, H, W). The seed, together with the index, decides how it is
        augmented.
        """
        index, seed = index_and_seed
        chance = torch.Generator().manual_seed(seed * len(self.data) + index)
        image = self.data.images[index : index + 1]
        image = self.data.network_inputs(
            image, chance, augment=self.config.augment, size=self.config.size
        )
        return image[0], self.data.labels[index]
