"""Image sets: `load` one as uint8 tensors in memory, `fetch` one from its publisher, ask `status`.

    train = load("fashion-mnist", "train")
    for images, labels in train.batches(128, device=device, seed=epoch, augment=True):
        ...

Nothing heavy is imported before a set is loaded.
"""

from labkit.data.catalog import names
from labkit.data.download import fetch, status
from labkit.data.imageset import ImageSet
from labkit.data.sets import load

__all__ = ["ImageSet", "fetch", "load", "names", "status"]
