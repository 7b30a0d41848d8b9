"""`ImageSet`: labelled images in memory, and the batches that a network is trained on."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from labkit.data._transforms import crop_and_mirror, normalise, resize
from labkit.errors import DataError

if TYPE_CHECKING:
    import torch


def require_items(data, n):
    """Raise DataError unless `n` is from 1 to the number of items of a data set."""
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
    classes  names of the classes
    mean     one number per channel, which `batches` subtracts from pixels scaled to 0..1
    std      one number per channel, by which `batches` then divides
    digest   sha256 that stands for the files that the set was read from
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
        """Return an `ImageSet` of the images at `indices`, an int64 tensor (n,), in that order."""
        indices = indices.to(self.images.device)
        return replace(self, images=self.images[indices], labels=self.labels[indices])

    def subset(self, n, *, seed=0):
        """Return an `ImageSet` of `n` images, drawn at random with the same share of each class.

        The images stay in their old order. The count of a class may be off by one. The same seed
        draws the same images.
        """
        import torch

        require_items(self, n)
        shuffled = torch.randperm(len(self), generator=torch.Generator().manual_seed(seed))
        labels = self.labels.cpu()[shuffled]
        counts = labels.bincount()
        starts = counts.cumsum(0) - counts  # first position of each class, if sorted by class
        rank = labels.argsort(stable=True).argsort() - starts[labels]  # number within the class
        # Sort the images by (k + 1/2) / m, where an image is the k-th of m in its class. The
        # classes are then spread evenly: the first n images have the same share of each.
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
        """Yield the batches (images, labels) of one epoch, on the device that trains.

        batch          images per batch; the last batch may be smaller unless `drop_last`
        device         device of the batches; None: where the set is
        seed           None: the images in order. A number: shuffled; the same number gives the same
                       order. `labkit.train.epoch_seed` returns a different number for each epoch
        augment        crop each image at random from a copy with a black border of an eighth of the
                       side, and mirror every second image on average
        size           resize to so many pixels a side (224 for networks made for ImageNet); None:
                       do not resize
        drop_last      leave out a last smaller batch
        channels_last  lay the images out as NHWC in memory, which tensor cores prefer
        yields         images float32 (n, C, size, size), of mean about 0 and deviation about 1;
                       labels int64 (n,)
        """
        import torch

        generator = torch.Generator().manual_seed(seed or 0)
        order = torch.arange(len(self))
        if seed is not None:
            order = torch.randperm(len(self), generator=generator)
        for chosen in order.to(self.images.device).split(batch):
            if drop_last and len(chosen) < batch:
                return
            images = self.images[chosen].to(device, non_blocking=True)
            labels = self.labels[chosen].to(device, non_blocking=True)
            yield (
                self.network_inputs(
                    images, generator, augment=augment, size=size, channels_last=channels_last
                ),
                labels,
            )

    def network_inputs(self, images, generator, *, augment, size, channels_last=False):
        """Return the input of a network for some images: augmented, normalised and resized.

        images     uint8 (n, C, H, W)
        generator  a torch.Generator on the CPU, which decides crops and mirrors

        The other arguments are those of `batches`.
        """
        import torch

        if augment:
            images = crop_and_mirror(images, generator)
        # Both are linear, and the weights of a resize sum to 1, so their order does not matter.
        images = resize(normalise(images, self.mean, self.std), size)
        if channels_last:
            images = images.contiguous(memory_format=torch.channels_last)
        return images
