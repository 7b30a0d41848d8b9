"""Small grey images as plain tensors, for networks that train in a fraction of a second."""

from typing import Any

from labkit.data._load import load
from labkit.errors import DataError


def small_images(name: str, split: str = "train", count: int | None = None) -> Any:
    """Return grey images at half their height and width, as rows of a tensor for a linear layer.

    name     a set of grey images: "fashion-mnist"
    split    "train" or "test"
    count    take the first so many images; None: all
    returns  images float32 (n, height / 2 * width / 2): each value is the mean of four pixels,
             normalised with the mean and deviation of the set; labels int64 (n,)
    Raises   DataError for a set of colour images
    """
    from torch.nn import functional as F

    data = load(name, split)
    channels = data.images.shape[1]
    if channels != 1:
        raise DataError(
            f"The images of {name} cannot be given as rows of pixels.",
            expected="grey images, one channel",
            found=f"{channels} channels",
            fix="use load(name, split).batches(...) for colour images",
        )
    pixels = F.avg_pool2d(data.images[:count].float(), 2).flatten(1) / 255
    return (pixels - data.mean[0]) / data.std[0], data.labels[:count].long()
