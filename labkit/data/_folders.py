"""Your own images: one folder per class, with or without a level train/ and test/ (or val/)
above.
"""

import unicodedata
from collections import defaultdict

from labkit.data._images import unfit
from labkit.data._picture import ENDINGS, FORMATS, NoPicture

LEVELS = {"train": ("train",), "test": ("test", "val")}
LONG = 200  # characters of a list of names in a message


def labelled(top, split):
    """Return the files of a split: (its folder, {name relative to it: label}, class names, {name:
    `NoPicture`}).

    The classes are the folders of the train split in alphabetical order; pictures that lie there
    without folders are of one class, which is enough to observe a network on. The last holds what
    is no file that could be read, and what lies beside the folders of the classes. Raises DataError
    naming the file or folder.
    """
    level = _level(top, split)
    entries = _visible(level)
    folders = [entry for entry in entries if entry.is_dir()]
    if entries and not folders:
        files, left_out = _files(level, entries)
        return level, dict.fromkeys(files, 0), ("pictures",), left_out
    classes = sorted(
        {class_name(entry) for entry in _visible(_level(top, "train")) if entry.is_dir()}
    )
    if not folders:
        raise unfit(level, "folders, one per class, or pictures", "an empty folder")

    # The files of each class, and what is no file.
    label_of = {}
    left_out = _beside_classes(entries)
    for folder in folders:
        if class_name(folder) not in classes:
            raise unfit(
                folder, f"classes of the train split: {', '.join(classes)[:LONG]}", folder.name
            )
        files, no_files = _files(level, _visible(folder))
        if not files:
            raise unfit(folder, "at least one picture in each class", "no file")
        label_of |= dict.fromkeys(files, classes.index(class_name(folder)))
        left_out |= no_files
    return level, label_of, tuple(classes), left_out


def class_name(folder):
    """Return the name of a folder as one spelling: an accent may be stored with its letter (NFC)
    or after it (NFD).
    """
    return unicodedata.normalize("NFC", folder.name)


def look_alike(classes):
    """Return a list for each group of class names that differ only by case, or by spaces at
    their ends.
    """
    spellings = defaultdict(list)
    for name in classes:
        spellings[name.strip().casefold()].append(name)
    return [names for names in spellings.values() if len(names) > 1]


def _level(top, split):
    """Return the folder of a split: train/, test/ or val/, or the folder itself where there is
    no such level.
    """
    for name in LEVELS[split]:
        if (top / name).is_dir():
            return top / name
    if split == "train" and not any((top / name).is_dir() for name in LEVELS["test"]):
        return top
    names = ", ".join(entry.name for entry in _visible(top))[:LONG]
    fix = (
        "sort the images into train/<class>/ and test/<class>/, or load the split "
        "'train' and divide it"
    )
    raise unfit(top, f"a folder {' or '.join(LEVELS[split])} for the split {split!r}", names, fix)


def _visible(folder):
    """Return what lies in a folder, in order; hidden names do not count."""
    entries = [entry for entry in folder.iterdir() if not entry.name.startswith(".")]
    return sorted(entries, key=lambda entry: (class_name(entry), entry.name))


def _files(level, entries):
    """Return ([names relative to the level of what can be read], {names of what cannot:
    `NoPicture`}).
    """
    files = []
    left_out = {}
    for entry in entries:
        name = entry.relative_to(level).as_posix()
        if entry.is_dir():
            raise unfit(
                entry,
                f"only picture files: {', '.join(FORMATS)}",
                "a folder",
                "move its pictures up, or away",
            )
        if entry.is_file():
            files.append(name)
        else:  # a dangling link, a loop of links and a named pipe
            left_out[name] = NoPicture("neither a file nor a folder")
    return files, left_out


def _beside_classes(entries):
    """Return {name: `NoPicture`} of what lies beside the folders of the classes.

    Raises DataError for a picture there, which has no class.
    """
    left_out = {}
    for entry in entries:
        if entry.is_dir():
            continue
        if entry.is_file() and entry.suffix.lower() in ENDINGS:
            fix = "put it into the folder of its class, or take it out"
            raise unfit(entry, "only folders here, one per class", "a picture beside them", fix)
        left_out[entry.name] = NoPicture("beside the folders of the classes")
    return left_out
