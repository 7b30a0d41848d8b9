"""Your own images: one folder per class, with or without a level train/ and test/ (or val/) above."""

from labkit.data._images import ENDINGS, damaged

LEVELS = {"train": ("train",), "test": ("test", "val")}


def labelled(top, split):
    """The image files of one split: (its folder, {name relative to it: label}, class names).

    The classes are the folders of the train split in alphabetical order; pictures that lie there without folders are
    of one class, which is enough to observe a network on. Raises DataError naming the file or folder.
    """
    level = _level(top, split)
    visible = [one for one in level.iterdir() if not one.name.startswith(".")]
    if visible and not any(one.is_dir() for one in visible):
        return level, {one.name: 0 for one in _entries(level, folders=False)}, ("pictures",)
    classes = [one.name for one in _entries(_level(top, "train") if split == "test" else level, folders=True)]
    found = {}
    for folder in _entries(level, folders=True):
        if folder.name not in classes:
            raise damaged(folder, f"classes of the train split: {', '.join(classes)[:200]}", folder.name)
        for one in _entries(folder, folders=False):
            found[f"{folder.name}/{one.name}"] = classes.index(folder.name)
    return level, found, tuple(classes)


def _level(top, split):
    """The folder of a split: train/, test/ or val/, or the folder itself where there is no such level."""
    for name in LEVELS[split]:
        if (top / name).is_dir():
            return top / name
    if split == "train" and not any((top / name).is_dir() for name in LEVELS["test"]):
        return top
    found = ", ".join(sorted(one.name for one in top.iterdir() if not one.name.startswith(".")))[:200]
    fix = "sort the images into train/<class>/ and test/<class>/, or load the split 'train' and divide it"
    raise damaged(top, f"a folder {' or '.join(LEVELS[split])} for the split {split!r}", found, fix)


def _entries(folder, *, folders):
    """What lies in a folder, in order: only folders, one per class, or only image files. Hidden names do not count."""
    wanted = "only folders, one per class" if folders else f"only image files: {', '.join(ENDINGS)}"
    found = sorted(one for one in folder.iterdir() if not one.name.startswith("."))
    for one in found:
        good = one.is_dir() if folders else one.is_file() and one.suffix.lower() in ENDINGS
        if not good:  # a dangling link, a loop of links and a named pipe are neither
            kind = "a folder" if one.is_dir() else "a file" if one.is_file() else "neither a file nor a folder"
            raise damaged(one, wanted, kind)
    if not found:
        raise damaged(folder, wanted, "an empty folder")
    return found
