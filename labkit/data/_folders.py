"""Finds the picture files and their labels in a user's folder that has a subfolder for each class.

The folders of the classes may lie in the folder itself, or in its subfolders train/ and test/ (or
val/).
"""

import unicodedata
from collections import defaultdict

from labkit.data._images import unfit
from labkit.data._picture import ENDINGS, FORMATS, NoPicture

LEVELS = {"train": ("train",), "test": ("test", "val")}
LONG = 200  # characters of a list of names in a message


def labelled(top, split):
    """Return (folder, label_of, classes, left_out): the files of a split with their labels.

    folder    the folder of the split
    label_of  {file name relative to the folder: label}, the label from 0
    classes   names of the classes: the folders of the train split in alphabetical order
    left_out  {name: `NoPicture`} of entries that are not used: files beside the folders of the
              classes, and entries that are neither file nor folder, such as a broken link
    Raises    DataError, which names the file or folder that is wrong

    Where the folder holds pictures and no folders, all pictures get the label 0 of one class,
    "pictures". Such a set cannot teach classes, but can show how a network computes.
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
    """Return the name of a folder in one spelling (Unicode NFC).

    File systems may store an accent with its letter (NFC) or after the letter (NFD).
    """
    return unicodedata.normalize("NFC", folder.name)


def look_alike(classes):
    """Return lists of class names that differ only by case or by spaces at their ends."""
    spellings = defaultdict(list)
    for name in classes:
        spellings[name.strip().casefold()].append(name)
    return [names for names in spellings.values() if len(names) > 1]


def _level(top, split):
    """Return the folder of a split: train/, test/ or val/, or the folder `top` itself.

    Where `top` has none of these three folders, `top` itself is the train split. Raises DataError
    where the folder of the split is missing.
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
    """Return the entries of a folder, sorted by name; hidden entries are left out."""
    entries = [entry for entry in folder.iterdir() if not entry.name.startswith(".")]
    return sorted(entries, key=lambda entry: (class_name(entry), entry.name))


def _files(level, entries):
    """Split entries of a folder into ([names of files], {name of any other entry: `NoPicture`}).

    Other entries are broken links and pipes. Names are relative to `level`, the folder of the
    split. Raises DataError where a folder is among the entries.
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
    """Return {name: `NoPicture`} of the entries that lie beside the folders of the classes.

    Raises DataError where such an entry is a picture, because its class is not known.

    entries  paths of all entries, the folders of the classes among them
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
