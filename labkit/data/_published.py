"""The published data sets: their list, whether they are on this machine, and their download.

`published.toml` holds the sha256 of each file. A file is opened only after its sha256 has been
compared.
"""

import hashlib
import shutil
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

from labkit.errors import DataError, require_known
from labkit.files import atomic, require_published, root

RETRIES = 2  # of a download that fails or brings something else than the published file


@dataclass(frozen=True, kw_only=True)
class Published:
    """A published set, as `published.toml` describes it.

    files  {file name: sha256}; a set with a `url` has one file, its archive
    mean   one number per channel: the mean over the train split, of pixels scaled to 0..1
    std    one number per channel: the deviation of the same pixels
    url    address of the archive; None for a set that comes with the workbook
    bytes  size of the archive
    """

    name: str
    files: dict[str, str]
    mean: list[float]
    std: list[float]
    url: str | None = None
    bytes: int | None = None

    @property
    def archive(self) -> str:
        """Return the file name of the archive."""
        return next(iter(self.files))

    @property
    def fix(self) -> str:
        """Return the shell command that brings an intact copy of the set."""
        if self.url is None:
            return f"git restore data/{self.name}"
        return f"labkit data get {self.name}"

    def files_of(self, split: str) -> list[str]:
        """Return the names of the files that hold a split, "train" or "test".

        A set with an archive has both splits in it.
        """
        if self.url is not None:
            return [self.archive]
        prefix = {"train": "train-", "test": "t10k-"}[split]
        return [name for name in self.files if name.startswith(prefix)]

    def require(self, name: str, path: Path) -> None:
        """Raise DataError unless `path` has the sha256 of the published file `name` of the set."""
        problem = f"The data set {self.name} is missing or damaged."
        require_published(path, self.files[name], fix=self.fix, problem=problem)


def _read_registry():
    """Return {name: `Published`} of published.toml."""
    text = Path(__file__).with_name("published.toml").read_text(encoding="utf-8")
    tables = tomllib.loads(text)
    return {name: Published(name=name, **facts) for name, facts in tables.items()}


SETS = _read_registry()


@dataclass(frozen=True, kw_only=True)
class SetStatus:
    """The state of a published set on this machine: one line of `labkit data list`.

    present     True where all files of the set are here with the published sha256
    path        folder of the set
    disk_bytes  size of all files in the folder; None where there are none
    how         command that brings an intact copy
    """

    name: str
    present: bool
    path: Path
    disk_bytes: int | None
    how: str


def names() -> tuple[str, ...]:
    """Return the names of the published sets, without "folder:<path>" and "course-text"."""
    return tuple(SETS)


def published(name: str) -> Published:
    """Return the published set of a name. Raises LabError where there is no such set."""
    require_known(name, (*SETS, "folder:<path>"), "data set")
    return SETS[name]


def folder_of(entry: Published) -> Path:
    """Return the path of a published set's folder, data/NAME."""
    return root() / "data" / entry.name


def check(entry: Published, folder: Path) -> None:
    """Raise DataError unless all files of a set have their published sha256.

    The error names the first file that differs.
    """
    for name in entry.files:
        entry.require(name, folder / name)


def digest_of(entry: Published, split: str) -> str:
    """Return a sha256 of the published sha256 of the files that hold a split. No file is read."""
    together = "".join(entry.files[name] for name in entry.files_of(split))
    return hashlib.sha256(together.encode()).hexdigest()


def status() -> list[SetStatus]:
    """Return a `SetStatus` for each published set; nothing is downloaded."""
    rows = []
    for entry in SETS.values():
        folder = folder_of(entry)
        disk_bytes = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
        try:
            check(entry, folder)
            present = True
        except DataError:
            present = False
        row = SetStatus(
            name=entry.name,
            present=present,
            path=folder,
            disk_bytes=disk_bytes or None,
            how=entry.fix,
        )
        rows.append(row)
    return rows


def fetch(name: str, *, source: str | Path | None = None) -> Path:
    """Download a published set, unless an intact copy is on this machine. Returns its folder.

    source  None: download from the publisher; or the path of an archive that you have, which is
            copied
    Raises  DataError: there is no network, or the archive has another sha256 than the published one
            and is not stored
    """
    entry = published(name)
    folder = folder_of(entry)
    if entry.url is None:
        check(entry, folder)
    elif source is None:
        _download(entry, folder)
    else:
        archive = Path(source).expanduser()
        entry.require(entry.archive, archive)
        with atomic(folder / entry.archive) as temporary:
            shutil.copyfile(archive, temporary)
    return folder


def _download(entry, folder):
    """Let pooch download the archive of a set into `folder`, unless an intact copy is there.

    pooch writes a temporary file, compares its sha256, and tries three times.
    """
    import pooch

    sha256 = f"sha256:{entry.files[entry.archive]}"
    registry = pooch.create(
        path=folder,
        base_url="",
        registry={entry.archive: sha256},
        urls={entry.archive: entry.url},
        retry_if_failed=RETRIES,
    )
    shows_progress = sys.stderr.isatty()  # silent in a log file
    downloader = pooch.HTTPDownloader(progressbar=shows_progress, chunk_size=2**16)
    try:
        registry.fetch(entry.archive, downloader=downloader)
    except (ValueError, OSError) as error:  # the errors of requests are OSErrors
        raise DataError(
            f"The data set {entry.name} could not be fetched from {entry.url}.",
            expected=f"{entry.archive} ({entry.bytes:,} bytes, {sha256}) in {folder}",
            found=f"{type(error).__name__}: {error}"[:400],
            fix=f"`{entry.fix}` with a network; or `{entry.fix} --from FILE` with a "
            f"{entry.archive} you have",
        ) from error
