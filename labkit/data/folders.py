"""Your own images: one folder a class, with or without a level train/ and test/ (or val/) above."""

from pathlib import Path

from labkit.data import decode
from labkit.data.archives import contents
from labkit.data.catalog import damaged
from labkit.errors import DataError

LEVELS = {"train": ("train",), "test": ("test", "val")}
FIX = "repair the file or move it out of the folder; are the images of several sizes, say load(..., size=64)"


def read(path, split, *, size=None):
    """One split of a folder of images as (images, labels, classes).

    size     bring each image to this many pixels a side; None: they are all alike
    returns  uint8 (N, 3, H, W), int64 (N,), class names in alphabetical order (those of train/)
    Raises   DataError naming the file or folder
    """
    import torch

    top = Path(path)
    level = find_level(top, split)
    classes = class_folders(find_level(top, "train") if split == "test" else level)
    if extra := sorted(set(class_folders(level)) - set(classes)):
        raise damaged(level / extra[0], f"classes of the train split: {', '.join(classes)[:200]}", extra[0], FIX)
    labelled = [(name, label) for label, one in enumerate(classes) for name in pictures(level, one)]
    if not labelled:
        raise DataError(f"{level} holds no images.", expected=", ".join(decode.ENDINGS), found="none", fix=FIX)
    order = [name for name, _ in labelled]
    pixels = decode.images(level, contents(level, order), order, FIX, size=size)
    return pixels, torch.tensor([label for _, label in labelled], dtype=torch.int64), classes


def find_level(top, split):
    """The folder of a split: train/, test/ or val/, or the folder itself where there is no such level."""
    if not top.is_dir():
        raise DataError(
            f"The data set folder:{top} is not there.",
            expected=f"a folder {top.absolute()}",
            found="a file" if top.exists() else "nothing of that name",
            fix="give the path of a folder that holds one folder a class",
        )
    for name in LEVELS[split]:
        if (top / name).is_dir():
            return top / name
    if split == "train" and not any((top / name).is_dir() for name in LEVELS["test"]):
        return top
    raise DataError(
        f"The folder {top} has no split {split!r}.",
        expected=" or ".join(f"{top / name}/" for name in LEVELS[split]),
        found=", ".join(sorted(one.name for one in top.iterdir()))[:200] or "an empty folder",
        fix="sort the images into train/<class>/ and test/<class>/, or load the split 'train' and divide it",
    )


def class_folders(level):
    """The names of the class folders, in order; anything else beside them is an error."""
    found = sorted(one for one in level.iterdir() if not one.name.startswith("."))
    for one in found:
        if not one.is_dir():
            raise damaged(one, f"only folders, one a class, in {level}", "a file", FIX)
    if not found:
        raise damaged(level, "one folder a class", "an empty folder", FIX)
    return tuple(one.name for one in found)


def pictures(level, name):
    """The image files of one class, relative to `level`."""
    if not (level / name).is_dir():
        return []  # a test split need not have every class
    found = sorted(one for one in (level / name).iterdir() if not one.name.startswith("."))
    if not found:
        raise damaged(level / name, "at least one image", "an empty folder", FIX)
    for one in found:
        if one.suffix.lower() not in decode.ENDINGS or not one.is_file():
            raise damaged(one, f"images {', '.join(decode.ENDINGS)}", "a folder" if one.is_dir() else one.suffix, FIX)
    return [one.relative_to(level).as_posix() for one in found]
