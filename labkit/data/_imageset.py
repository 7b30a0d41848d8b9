"""ImageSet: images in memory, and the batches a network is trained on."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from labkit.data._transforms import change, normalise, resize
from labkit.errors import DataError

if TYPE_CHECKING:
    import torch


def require_items(data, n):
    """Refuse to take `n` items of a set that has fewer, or none of it."""
    if not 0 < n <= len(data):
        raise DataError(
            f"{n} items cannot be taken from {data.name} {data.split}.",
            expected=f"1 to {len(data):,}",
            found=f"{n}",
            fix="ask for fewer",
        )


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ImageSet:
    """Labelled images of one size.

    images   uint8 (N, C, H, W), 0 to 255
    labels   int64 (N,), 0 to len(classes) - 1
    classes  their names
    mean     per channel, of pixels scaled to 0..1: what `batches` subtracts
    std      per channel: what `batches` divides by
    digest   sha256 that stands for the files it was read from
    """

    images: torch.Tensor
    labels: torch.Tensor
    classes: tuple[str, ...]
    name: str
    split: str
    mean: tuple[float, ...]
    std: tuple[float, ...]
    digest: str

    def __len__(self):
        return len(self.images)

    def __repr__(self):
        _, channels, height, width = self.images.shape
        kind = {1: "grey", 3: "colour"}.get(channels, f"{channels}-channel")
        return (
            f"{self.name} {self.split}: {len(self):,} {kind} images {height} x {width}, "
            f"{len(self.classes)} classes"
        )

    def take(self, indices):
        """Return the images of these indices, an int64 tensor (n,), in that order."""
        indices = indices.to(self.images.device)
        return replace(self, images=self.images[indices], labels=self.labels[indices])

    def subset(self, n, *, seed=0):
        """Return `n` images in their old order, each class in proportion (off by at most one),
        the same for a seed.
        """
        import torch

        require_items(self, n)
        shuffled = torch.randperm(len(self), generator=torch.Generator().manual_seed(seed))
        labels = self.labels.cpu()[shuffled]
        counts = labels.bincount()
        starts = counts.cumsum(0) - counts  # of each class, where all are in order of their classes
        rank = labels.argsort(stable=True).argsort() - starts[labels]  # of each image in its class
        # the k-th of m images of a class stands at (k + 1/2) / m of the way: the first n on that
        # way are in proportion
        drawn = shuffled[((rank.double() + 0.5) / counts[labels]).argsort(stable=True)[:n]]
        return self.take(drawn.sort().values)

    def batches(
        self,
        batch,
        *,
        device=None,
        seed=None,
        augment=False,
        size=None,
        drop_last=False,
        channels_last=False,
    ):
        """Yield one epoch of (images, labels), made ready on the device that trains.

        batch          images per batch; the last may be smaller unless `drop_last`
        device         where to make them; None: where the set is
        seed           None: in order; a number: shuffled, the same way for the same number (another
                       in each epoch: `labkit.train.epoch_seed`)
        augment        crop at random from a black border of an eighth of the side, and mirror one
                       in two
        size           resize to this many pixels a side (224 for networks made for ImageNet); None:
                       as they are
        channels_last  lay the images out as NHWC in memory, which tensor cores prefer
        yields         float32 (n, C, size, size) of mean 0 and deviation 1, int64 (n,)
        """
        import torch

        chance = torch.Generator().manual_seed(seed or 0)
        order = torch.arange(len(self))
        if seed is not None:
            order = torch.randperm(len(self), generator=chance)
        for chosen in order.to(self.images.device).split(batch):
            if drop_last and len(chosen) < batch:
                return
            images = self.images[chosen].to(device, non_blocking=True)
            labels = self.labels[chosen].to(device, non_blocking=True)
            yield (
                self.prepared(
                    images, chance, augment=augment, size=size, channels_last=channels_last
                ),
                labels,
            )

    def prepared(self, images, chance, *, augment, size, channels_last=False):
        """Turn uint8 (n, C, H, W) into the floats that a network sees.

        chance  a torch.Generator; the other arguments as in `batches`
        """
        import torch

        if augment:
            images = change(images, chance)
        # both are linear and the weights of a resize sum to 1, so the order does not matter: the
        # cheap one first
        images = resize(normalise(images, self.mean, self.std), size)
        if channels_last:
            images = images.contiguous(memory_format=torch.channels_last)
        return images
