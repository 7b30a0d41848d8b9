"""Image sets: `load` one (an `ImageSet`), `fetch` one from its publisher, ask for their `names` and `status`.

    train = load("fashion-mnist", "train")
    for images, labels in train.batches(128, device=device, seed=epoch, augment=True):
        ...

Nothing heavy is imported before a set is loaded.
"""

from labkit.data._download import fetch, status
from labkit.data._imageset import ImageSet
from labkit.data._load import load
from labkit.data._published import names

__all__ = ["ImageSet", "fetch", "load", "names", "status"]
