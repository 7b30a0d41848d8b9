"""Bringing a set to this machine: `fetch` it from its publisher (or from an archive you have), ask `status`."""

import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from labkit.data._published import SETS, check, folder_of, published
from labkit.errors import DataError
from labkit.files import atomic


@dataclass(frozen=True, kw_only=True)
class SetStatus:
    """One line of `labkit data list`.

    present     whether the set is here, and its files have the published sha256
    disk_bytes  of all that lies in its folder; None: nothing
    how         the command that brings a good copy
    """

    name: str
    present: bool
    path: Path
    disk_bytes: int | None
    how: str


def status() -> list[SetStatus]:
    """A SetStatus for each published set; nothing is fetched."""
    rows = []
    for entry in SETS.values():
        folder = folder_of(entry)
        size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) or None
        try:
            whole = bool(check(entry, folder, entry.files))
        except DataError:
            whole = False
        rows.append(SetStatus(name=entry.name, present=whole, path=folder, disk_bytes=size, how=entry.fix))
    return rows


def fetch(name: str, *, source: str | Path | None = None) -> Path:
    """Bring a set to this machine and check it; returns its folder. A good one that is there is left alone.

    source  None: the publisher; or the path of an archive you have
    Raises  DataError: no network, or not the published archive; nothing of it is kept
    """
    entry = published(name)
    folder = folder_of(entry)
    if entry.url is None:
        check(entry, folder, entry.files)
    elif source is None:
        _download(entry, folder)
    else:
        archive = Path(source).expanduser()
        entry.require(entry.archive, archive)
        with atomic(folder / entry.archive) as temporary:
            shutil.copyfile(archive, temporary)
    return folder


def _download(entry, folder):
    """Fetch the archive: temporary file, hash, three tries. A good one that is there is kept."""
    import pooch

    wanted = f"sha256:{entry.files[entry.archive]}"
    keeper = pooch.create(
        folder, "", registry={entry.archive: wanted}, urls={entry.archive: entry.url}, retry_if_failed=2
    )
    shows_progress = sys.stderr.isatty()  # silent in a log file
    try:
        keeper.fetch(entry.archive, downloader=pooch.HTTPDownloader(progressbar=shows_progress, chunk_size=2**16))
    except (ValueError, OSError) as error:  # the errors of requests are OSErrors
        what = f"The data set {entry.name} could not be fetched from {entry.url}."
        expected = f"{entry.archive} ({entry.bytes:,} bytes, {wanted}) in {folder}"
        fix = f"`{entry.fix}` with a network; or `{entry.fix} --from FILE` with a {entry.archive} you have"
        found = f"{type(error).__name__}: {error}"[:400]
        raise DataError(what, expected=expected, found=found, fix=fix) from error
