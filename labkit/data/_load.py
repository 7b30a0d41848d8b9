"""`load`: returns a split of a data set by its name."""

from pathlib import Path
from typing import Any

from labkit.data._cache import cached, fingerprint
from labkit.data._folders import labelled, look_alike
from labkit.data._images import read_images, require_few, summary, tell, unfit
from labkit.data._imageset import ImageSet
from labkit.data._picture import RULES, NoPicture
from labkit.data._published import check, digest_of, folder_of, published
from labkit.data._readers import cifar10, cifar100, fashion_mnist, tiny_imagenet
from labkit.data._text import COURSE_TEXT, course_text
from labkit.errors import DataError, require_known

READERS = {
    "fashion-mnist": fashion_mnist,
    "cifar10": cifar10,
    "cifar100": cifar100,
    "tiny-imagenet": tiny_imagenet,
}
IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)


def load(
    name: str, split: str = "train", *, limit: int | None = None, size: int | None = None
) -> Any:
    """Return a split of a data set: images in memory as an `ImageSet`, or text as a `TextSet`.

    name    one of `labkit.data.names()`; "folder:<path>", with a folder for each class; or
            "course-text"
    split   "train" or "test"; the "test" of tiny-imagenet is its official `val`
    limit   take only so many items: of images the same share of each class, of text the first
            pieces; None: all
    size    only for "folder:<path>": scale each image to so many pixels on its shorter side, and
            cut out the middle square
    Raises  DataError: the set is missing or damaged; the error says what to do. LabError: there is
            no such set or split
    """
    require_known(split, ("train", "test"), "split")
    if size is not None and not name.startswith("folder:"):
        raise DataError(
            f"The images of {name} have one size already.",
            expected="size only for folder:<path>",
            found=f"size={size}",
            fix="resize in batches: .batches(128, size=224)",
        )
    if name == COURSE_TEXT:
        data = course_text(split)
    else:
        data = _image_set(name, split, size)
    if limit is None:
        return data
    return data.subset(limit)


def _image_set(name, split, size):
    """Return a split as an `ImageSet`. Raises DataError, with the set's name, for any failure."""
    try:
        if name.startswith("folder:"):
            return _folder_images(name, split, size)
        return _published_images(published(name), split)
    # not readable, or a set that is not as published
    except (OSError, LookupError, ValueError) as error:
        raise DataError(
            f"{name} cannot be read.",
            expected="whole, readable files",
            found=f"{type(error).__name__}: {error}",
            fix="see that all of it is there and may be read",
        ) from error


def _published_images(entry, split):
    """Return a split of a published set as an `ImageSet`.

    Images decoded from an archive are stored beside the archive.
    """
    folder = folder_of(entry)
    check(entry, folder)
    digest = digest_of(entry, split)
    files = [folder / file for file in entry.files]

    def read():
        images, labels, classes = READERS[entry.name](split, *files)
        return images, labels, list(classes)

    if entry.url is None:
        images, labels, classes = read()
    else:
        images, labels, classes = cached(folder / f"decoded-{split}.safetensors", digest, read)
    return ImageSet(
        images=images,
        labels=labels,
        classes=tuple(classes),
        name=entry.name,
        split=split,
        mean=tuple(entry.mean),
        std=tuple(entry.std),
        digest=digest,
    )


def _folder_images(name, split, size):
    """Return a split of a folder of one's own images as an `ImageSet`.

    Files that give no picture are left out, and a message on stderr names them. `mean` and `std`
    are those of ImageNet, which pretrained networks expect.
    """
    top = Path(name.removeprefix("folder:")).expanduser()
    level, label_of, classes, no_files = labelled(top, split)
    digest = fingerprint(level, label_of, (classes, list(no_files), size, RULES))

    def read():
        import torch

        left_out = dict(no_files)
        images = read_images(level, list(label_of), size=size, left_out=left_out)
        require_few(level, left_out, len(label_of) + len(no_files))
        _require_all_classes(level, label_of, classes, left_out)
        labels = torch.tensor([label for file, label in label_of.items() if file not in left_out])
        reasons = {file: (reason.kind, reason.detail) for file, reason in left_out.items()}
        return images, labels, reasons

    images, labels, reasons = cached(top / f".labkit-{split}.safetensors", digest, read)

    # JSON holds pairs of texts; what the messages want are `NoPicture`s.
    left_out = {file: NoPicture(*reason) for file, reason in reasons.items()}
    _tell(level, classes, left_out, len(images))
    return ImageSet(
        images=images,
        labels=labels,
        classes=classes,
        name=f"folder:{top}",
        split=split,
        mean=IMAGENET_MEAN,
        std=IMAGENET_STD,
        digest=digest,
    )


def _require_all_classes(level, label_of, classes, left_out):
    """Raise DataError where one of the classes has no picture that could be decoded.

    level     folder of the split
    label_of  {file: label}
    classes   names of the classes, at the positions of their labels
    left_out  {file: `NoPicture`}
    """
    usable = {label for file, label in label_of.items() if file not in left_out}
    missing = sorted(set(label_of.values()) - usable)
    if missing:
        class_names = ", ".join(classes[label] for label in missing)
        raise unfit(
            level,
            "at least one picture of each class",
            f"none of {class_names}: {summary(left_out, len({*label_of, *left_out}))}",
            problem="has classes without a picture that can be read",
        )


def _tell(level, classes, left_out, count):
    """Print which files of a folder are left out, and which names of classes look alike.

    Names look alike where only their case or the spaces at their ends differ: "Cat" and "cat".

    level     folder of the split
    left_out  {name: `NoPicture`}
    count     number of images that are not left out
    """
    if left_out:
        tell(f"{level}: {summary(left_out, count + len(left_out))}")
    for spellings in look_alike(classes):
        alike = " and ".join(map(repr, spellings))
        tell(f"{level}: {alike} differ by case or spaces only, and count as different classes")
