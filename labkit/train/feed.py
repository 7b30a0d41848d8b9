"""What a training step is fed with: the batches of each epoch, on the device."""

import torch
from torch.utils.data import DataLoader, Dataset, Sampler

from labkit.errors import DataError


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
        self.config, self.device = config, device
        self.data = data.to(device) if config.resident else data
        by_image = config.workers is not None or config.pin_memory
        self.loader = image_loader(self.data, config, device) if by_image else None

    def __len__(self):
        return len(self.data) // self.config.batch

    def epoch(self, number):
        """(images, labels) of each step of epoch `number`: float32 (batch, C, H, W) and int64 (batch,)."""
        config = self.config
        if self.loader is None:
            how = {"augment": config.augment, "size": config.size, "channels_last": config.channels_last}
            return self.data.batches(config.batch, device=self.device, seed=config.seed + number, drop_last=True, **how)
        self.loader.sampler.seed = config.seed + number
        return self.moved(self.loader)

    def moved(self, batches):
        """Batches of the host on the device; from pinned memory the copy goes on while Python does."""
        layout = torch.channels_last if self.config.channels_last else torch.preserve_format
        for images, labels in batches:
            images = images.to(self.device, non_blocking=True, memory_format=layout)
            yield images, labels.to(self.device, non_blocking=True)


def image_loader(data, config, device):
    """torch's DataLoader over single images, as most training scripts use it."""
    return DataLoader(
        OneByOne(data, config),
        batch_size=config.batch,
        sampler=Shuffled(len(data)),
        num_workers=config.workers or 0,
        persistent_workers=bool(config.workers),
        pin_memory=config.pin_memory and device.type != "cpu",
        drop_last=True,
        generator=torch.Generator(),  # its own dice: those of the network stay as they are
    )


class Shuffled(Sampler):
    """(index, seed) of every image, in the order `ImageSet.batches` gives for the same seed."""

    def __init__(self, count):
        self.count, self.seed = count, 0

    def __len__(self):
        return self.count

    def __iter__(self):
        order = torch.randperm(self.count, generator=torch.Generator().manual_seed(self.seed))
        return ((index, self.seed) for index in order.tolist())


class OneByOne(Dataset):
    """Single images of an ImageSet, made ready for a network."""

    def __init__(self, data, config):
        self.data = data
        self.batches = data.batches(1, augment=config.augment, size=config.size)

    def __len__(self):
        return len(self.data)

    def __getitem__(self, place):
        index, seed = place
        chance = torch.Generator().manual_seed(seed * len(self.data) + index)
        image = self.batches.prepare(self.data.images[index : index + 1], chance)
        return image[0], self.data.labels[index]
