"""Damaged and hostile archives and data files, and the judge that says whether a reader withstands them.

`survey(folder)` tries every mutation against labkit, each in a folder of its own below `folder`, and returns
{name: None, or what went wrong}. Withstood means: a LabError whose text names the file, what was expected,
what was found and what to do; and not one file below that folder is new, gone or changed.

`survey(folder, NAIVE)` does the same to a reader that trusts everything. It must do badly, or the
mutations prove nothing.
"""

import contextlib
import gzip
import pickle
import struct
import tarfile
import warnings
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import hostile_archives
import hostile_images
import hostile_sets
import numpy as np
from PIL import Image

from labkit.data import archives, catalog, sets
from labkit.errors import LabError


@dataclass(frozen=True)
class Tools:
    """What is on trial.

    extract  (archive, target): unpack into a new folder
    read     (set name, split, folder): read one split; the set name may be "folder"
    """

    extract: Callable
    read: Callable


def read_ours(name, split, folder):
    if name == "folder":
        return sets.load(f"folder:{folder}", split)
    return sets.read(catalog.SETS[name], split, folder)


OURS = Tools(archives.extract, read_ours)


def mutations():
    """All of them, more than a hundred."""
    return [*hostile_sets.mutations(), *hostile_archives.mutations(), *hostile_images.mutations()]


def survey(folder, tools=OURS):
    """{mutation name: None, or what went wrong} of all mutations."""
    results = {}
    for number, mutation in enumerate(mutations()):
        assert mutation.name not in results, f"two mutations are called {mutation.name}"
        place = Path(folder) / f"{number:03}"
        place.mkdir(parents=True)
        results[mutation.name] = trial(mutation, place, tools)
    return results


def trial(mutation, place, tools):
    """None when `tools` withstand the mutation, else what went wrong."""
    (place / "victim").write_text("must stay as it is")
    mutation.damage(place)
    before = snapshot(place)
    try:
        with contextlib.chdir(place):  # where a program hidden in a file would write
            mutation.attack(tools, place)
        problem = "accepted"
    except LabError as error:
        problem = unclear(error, mutation.file)
    except Exception as error:
        problem = f"raised {type(error).__name__}: {error}"
    after = snapshot(place)
    changed = [name for name in before.keys() | after.keys() if before.get(name) != after.get(name)]
    return f"changed {sorted(changed)}" if changed else problem


def unclear(error, file):
    """What the text of an error lacks, or None."""
    lacks = [part for part in ("expected", "found", "fix") if not getattr(error, part)]
    lacks += [] if file in str(error) else [f"the name {file}"]
    return f"unclear, lacks {', '.join(lacks)}: {error}" if lacks else None


def snapshot(folder):
    """{path: what is there} of everything below a folder, links not followed."""
    seen = {}
    for path in Path(folder).rglob("*"):
        kind = "link" if path.is_symlink() else "folder" if path.is_dir() else "file"
        seen[str(path)] = sha256(path.read_bytes()).hexdigest() if path.is_file() and kind == "file" else kind
    return seen


# ---- a reader that trusts everything


def extract_naively(archive, target):
    Path(target).mkdir()
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as opened:
            for info in opened.infolist():
                path = Path(target) / info.filename
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(opened.read(info))
    else:
        with tarfile.open(archive) as opened:
            opened.extractall(target, **({"filter": "fully_trusted"} if hasattr(tarfile, "data_filter") else {}))


def read_naively(name, split, folder):
    readers = {"fashion-mnist": naive_fashion, "tiny-imagenet": naive_pictures, "folder": naive_pictures}
    return readers.get(name, naive_cifar)(folder, split)


def naive_fashion(folder, split):
    prefix = "train" if split == "train" else "t10k"
    with gzip.open(folder / f"{prefix}-images-idx3-ubyte.gz") as file:
        count, height, width = struct.unpack(">III", file.read(16)[4:])
        images = np.frombuffer(file.read(count * height * width), dtype=np.uint8)
    with gzip.open(folder / f"{prefix}-labels-idx1-ubyte.gz") as file:
        return images, np.frombuffer(file.read()[8:], dtype=np.uint8)


def naive_cifar(folder, split):
    pages = [path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file() and path.name != "victim"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pages = [pickle.loads(page, encoding="bytes") for page in pages]
    return [(page[b"data"], page[b"labels"]) for page in pages if b"data" in page]


def naive_pictures(folder, split):
    images = []
    for path in sorted(folder.rglob("*")):
        if path.suffix in (".JPEG", ".png"):
            with Image.open(path) as image:
                images.append(np.asarray(image))
    return images


NAIVE = Tools(extract_naively, read_naively)
