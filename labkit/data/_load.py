"""`load`: one name, one split, one ImageSet."""

from pathlib import Path
from typing import Any

from labkit.data._cache import cached, fingerprint
from labkit.data._folders import labelled
from labkit.data._images import read_images
from labkit.data._imageset import ImageSet
from labkit.data._published import check, folder_of, published
from labkit.data._readers import cifar10, cifar100, fashion_mnist, tiny_imagenet
from labkit.data._text import COURSE_TEXT, course_text
from labkit.errors import DataError, require_known

READERS = {"fashion-mnist": fashion_mnist, "cifar10": cifar10, "cifar100": cifar100, "tiny-imagenet": tiny_imagenet}


def load(name: str, split: str = "train", *, limit: int | None = None, size: int | None = None) -> Any:
    """A data set as uint8 images in memory, or the course's text as bytes.

    name     one of `labkit.data.names()`, or "folder:<path>" with one folder per class, or "course-text"
    split    "train" or "test"; the "test" of tiny-imagenet is its official `val`
    limit    take only so many images, each class in proportion; None: all
    size     only for folder: bring every image to this many pixels a side
    returns  ImageSet, or TextSet
    Raises   DataError: the set is missing or damaged; it says what to do
    """
    require_known(split, ("train", "test"), "split")
    if size is not None and not name.startswith("folder:"):
        what, fix = f"The images of {name} have one size already.", "resize in batches: .batches(128, size=224)"
        raise DataError(what, expected="size only for folder:<path>", found=f"size={size}", fix=fix)
    if name == COURSE_TEXT:
        text = course_text(split)
        return text if limit is None else text.subset(limit)
    try:
        found, about = _own(name, split, size) if name.startswith("folder:") else _published(published(name), split)
    except (OSError, LookupError, ValueError) as error:  # not readable, or a set that is not as published
        reason = f"{type(error).__name__}: {error}"
        fix = "see that all of it is there and may be read"
        raise DataError(f"{name} cannot be read.", expected="whole, readable files", found=reason, fix=fix) from error
    images, labels, classes = found
    whole = ImageSet(images=images, labels=labels, classes=classes, split=split, **about)
    return whole if limit is None else whole.subset(limit)


def _published(entry, split):
    """A split of a published set, as in `_own`; what takes long to decode is kept beside its archive."""
    folder, read, files = folder_of(entry), READERS[entry.name], entry.needed(split)
    paths, digest = [folder / name for name in files], check(entry, folder, files)
    kept = folder / f"decoded-{split}.safetensors"
    found = cached(kept, digest, lambda: read(split, *paths)) if entry.url else read(split, *paths)
    return found, {"name": entry.name, "mean": tuple(entry.mean), "std": tuple(entry.std), "digest": digest}


def _own(name, split, size):
    """A split of a reader's own folder: ((images, labels, classes), what else an ImageSet says of itself).

    Its mean and std are ImageNet's, which pretrained networks expect.
    """
    top = Path(name.removeprefix("folder:")).expanduser()
    level, label, classes = labelled(top, split)
    digest = fingerprint(level, label, (classes, size))

    def build():
        import torch

        return read_images(level, list(label), size=size), torch.tensor(list(label.values())), classes

    found = cached(top / f".labkit-{split}.safetensors", digest, build)
    scale = {"mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}
    return found, {"name": f"folder:{top}", "digest": digest, **scale}
