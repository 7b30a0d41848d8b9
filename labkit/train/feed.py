"""What a training step is fed with: the batches of each epoch, on the device."""

import torch
from torch.utils.data import DataLoader

from labkit.errors import DataError, Unavailable


class Feed:
    """The batches of every epoch of `data`; `len` is the steps of one epoch.

    data  a `labkit.data.ImageSet`, or anything with a length and its `batches(...)`
    """

    def __init__(self, data, config, *, device):
        if len(data) < config.batch:
            raise DataError(
                f"{len(data)} images are not one batch.",
                expected=f"at least {config.batch}",
                found=f"{len(data)}",
                fix="choose a smaller batch, or more images",
            )
        self.data, self.config, self.device = data, config, device
        self.order = list(range(len(data)))  # of the images, with the epoch's seed; the loader's processes follow it
        self.loader = None
        if config.workers is not None or config.pin_memory:  # single images, as most training scripts use it
            self.loader = DataLoader(
                _OneByOne(data, config),
                batch_size=config.batch,
                sampler=self.order,
                num_workers=config.workers or 0,
                persistent_workers=bool(config.workers),
                pin_memory=config.pin_memory and device.type != "cpu",
                drop_last=True,
                generator=torch.Generator(),  # its own random numbers: those of the network stay as they are
            )

    def __len__(self):
        return len(self.data) // self.config.batch

    def epoch(self, number):
        """(images, labels) of each step of epoch `number`: float32 (batch, C, H, W) and int64 (batch,)."""
        config, seed = self.config, self.config.seed + number
        if self.loader is None:
            size = side_of(config, number, self.data.images.shape[-1]) if config.first_size else config.size
            how = {"augment": config.augment, "size": size, "channels_last": config.channels_last}
            return self.data.batches(config.batch, device=self.device, seed=seed, drop_last=True, **how)
        order = torch.randperm(len(self.data), generator=torch.Generator().manual_seed(seed))  # as `batches` has it
        self.order[:] = [(index, seed) for index in order.tolist()]
        return self._loaded()

    def _loaded(self):
        """The loader's batches on the device; from pinned memory the copy goes on while Python does."""
        layout = torch.channels_last if self.config.channels_last else torch.preserve_format
        try:
            for images, labels in self.loader:
                images = images.to(self.device, non_blocking=True, memory_format=layout)
                yield images, labels.to(self.device, non_blocking=True)
        except (OSError, RuntimeError) as error:
            if not isinstance(error, OSError) and "shared memory" not in str(error):
                raise
            raise Unavailable(
                "The processes that load images cannot hand them over here.",
                expected="room in the shared memory, /dev/shm",
                found=str(error).strip().splitlines()[-1],
                fix="load in this process (0 workers), or start the container with more shared memory",
            ) from None


def side_of(config, epoch, known):
    """Pixels a side of the images of an epoch; `known`: of those of the set."""
    last = config.size or known
    if config.first_size is None:
        return last
    return round(config.first_size + (last - config.first_size) * epoch / (config.epochs - 1))


class _OneByOne:
    """Single images of an ImageSet, made ready for a network; asked for by (index, seed)."""

    def __init__(self, data, config):
        self.data, self.config = data, config

    def __getitem__(self, place):
        index, seed = place
        chance = torch.Generator().manual_seed(seed * len(self.data) + index)
        image = self.data.images[index : index + 1]
        image = self.data.prepared(image, chance, augment=self.config.augment, size=self.config.size)
        return image[0], self.data.labels[index]
