"""What the workbook knows about each published set: where it comes from, its hash, where it lies."""

import os
from dataclasses import dataclass
from pathlib import Path

from labkit.errors import DataError
from labkit.files import root

IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
SPLITS = ("train", "test")


@dataclass(frozen=True, kw_only=True)
class Known:
    """A published set.

    archive   official file name; None for the set that comes with the workbook
    digest    "sha256:..." of the archive
    unpacked  name of the one folder inside the archive
    mean      per channel over the train split, of pixels scaled to 0..1
    std       likewise
    """

    name: str
    archive: str | None
    url: str | None
    digest: str | None
    archive_bytes: int | None
    unpacked: str | None
    mean: tuple[float, ...]
    std: tuple[float, ...]

    @property
    def fix(self):
        """The one command that brings a good copy."""
        return f"labkit data get {self.name}" if self.archive else f"git restore data/{self.name}"


# The publishers give md5 only (c58f3010..., eb9058c3..., 90528d7c...); these are the sha256 of the same files.
SETS = {
    known.name: known
    for known in (
        Known(
            name="fashion-mnist",
            archive=None,
            url=None,
            digest=None,
            archive_bytes=None,
            unpacked=None,
            mean=(0.2860,),
            std=(0.3530,),
        ),
        Known(
            name="cifar10",
            archive="cifar-10-python.tar.gz",
            url="https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",
            digest="sha256:6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce",
            archive_bytes=170_498_071,
            unpacked="cifar-10-batches-py",
            mean=(0.4914, 0.4822, 0.4465),
            std=(0.2470, 0.2435, 0.2616),
        ),
        Known(
            name="cifar100",
            archive="cifar-100-python.tar.gz",
            url="https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz",
            digest="sha256:85cd44d02ba6437773c5bbd22e183051d648de2e7d6b014e1ef29b855ba677a7",
            archive_bytes=169_001_437,
            unpacked="cifar-100-python",
            mean=(0.5071, 0.4865, 0.4409),
            std=(0.2673, 0.2564, 0.2762),
        ),
        Known(
            name="tiny-imagenet",
            archive="tiny-imagenet-200.zip",
            url="https://cs231n.stanford.edu/tiny-imagenet-200.zip",
            digest="sha256:6198c8ae015e2b3e007c7841da39ec069199b9aa3bfa943a462022fe5e43c821",
            archive_bytes=248_100_043,
            unpacked="tiny-imagenet-200",
            mean=(0.4802, 0.4481, 0.3975),
            std=(0.2770, 0.2691, 0.2821),
        ),
    )
}


def names():
    """The names `load` knows, besides `folder:<path>`."""
    return tuple(SETS)


def known(name):
    """The catalogue entry of `name`; DataError when there is none."""
    if name not in SETS:
        raise DataError(
            f"There is no data set {name!r}.",
            expected=f"{', '.join(SETS)} or folder:<path>",
            found=repr(name),
            fix="labkit data list",
        )
    return SETS[name]


def places(name):
    """Folders where a set may lie, first choice first."""
    moved = os.environ.get("LABKIT_DATA")
    return [Path(base) / name for base in ([moved] if moved else []) + [root() / "data"]]


def home(name):
    """The folder that has the set, or else the one where `fetch` puts it (never the committed one's)."""
    return next((place for place in places(name) if holds(place, SETS[name])), places(name)[0])


def holds(folder, entry):
    """Whether anything of the set lies in `folder`; if it is whole is checked on load."""
    return any((folder / part).exists() for part in ("manifest.json", entry.archive, entry.unpacked) if part)


def missing(entry, folder, found="nothing of it"):
    """The error of a set that is not on this machine: file, place, hash and the command that fixes it."""
    if entry.archive is None:
        wanted = f"{folder} as it was committed, with its manifest.json"
    else:
        wanted = f"{entry.archive} ({entry.archive_bytes:,} bytes, {entry.digest}) or {entry.unpacked}/ in {folder}"
    return DataError(
        f"The data set {entry.name} is not on this machine.",
        expected=wanted,
        found=f"{found} in {' or '.join(str(place) for place in dict.fromkeys([folder, *places(entry.name)]))}",
        fix=entry.fix,
    )


def damaged(path, expected, found, fix="put back a good copy of this file"):
    """The error of a data file that is not what it should be."""
    return DataError(f"{path} is damaged or not what its name says.", expected=expected, found=found, fix=fix)
