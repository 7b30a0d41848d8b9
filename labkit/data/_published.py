"""What the workbook knows about each published set: its files, their sha256, where they come from, where they lie."""

import hashlib
import os
import tomllib
from dataclasses import dataclass
from pathlib import Path

from labkit.errors import require_known
from labkit.files import require_published, root


@dataclass(frozen=True, kw_only=True)
class Published:
    """A published set, as published.toml describes it. No file of it is opened before its sha256 has been compared."""

    name: str
    files: dict[str, str]
    mean: list[float]
    std: list[float]
    url: str | None = None
    bytes: int | None = None

    @property
    def archive(self):
        """File name of the archive."""
        return next(iter(self.files))

    @property
    def fix(self):
        """The one command that brings a good copy."""
        return f"labkit data get {self.name}" if self.url else f"git restore data/{self.name}"

    def needed(self, split):
        """Names of the files that a split is read from."""
        prefix = {"train": "train-", "test": "t10k-"}[split]
        return [name for name in self.files if self.url or name.startswith(prefix)]

    def require(self, name, path):
        """Raise DataError unless `path` is the published file `name` of the set."""
        what = f"The data set {self.name} is missing or damaged."
        require_published(path, self.files[name], fix=self.fix, what=what)


_TABLES = tomllib.loads(Path(__file__).with_name("published.toml").read_text(encoding="utf-8"))
SETS = {name: Published(name=name, **facts) for name, facts in _TABLES.items()}


def names():
    """The names `load` knows, besides `folder:<path>`."""
    return tuple(SETS)


def published(name):
    """The entry of `name`; LabError when there is none."""
    require_known(name, (*SETS, "folder:<path>"), "data set")
    return SETS[name]


def folder_of(entry):
    """The folder that has anything of the set, or else the one where `fetch` puts it."""
    moved = os.environ.get("LABKIT_DATA")
    places = [Path(base) / entry.name for base in ([moved] if moved else []) + [root() / "data"]]
    return next((place for place in places if any((place / name).exists() for name in entry.files)), places[0])


def check(entry, folder, files):
    """Compare these files of the set with their published sha256; returns one sha256 that stands for them all."""
    for name in files:
        entry.require(name, folder / name)
    return hashlib.sha256("".join(entry.files[name] for name in files).encode()).hexdigest()
