"""Bringing a set to this machine: `fetch` it from its publisher (or from an archive you have), ask `status`."""

import hashlib
import shutil
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from labkit.data import catalog, manifest
from labkit.data.archives import extract, file_names
from labkit.errors import DataError
from labkit.files import atomic

TRIES = 3
TIMEOUT_S = 30  # without a single byte


@dataclass(frozen=True, kw_only=True)
class SetStatus:
    """One line of `labkit data`: where a set is, or how to get it."""

    name: str
    present: bool
    path: Path
    disk_bytes: int | None
    how: str


def status():
    """A SetStatus for each known set; nothing is hashed or fetched."""
    rows = []
    for entry in catalog.SETS.values():
        folder = catalog.home(entry.name)
        present = catalog.holds(folder, entry)
        size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) if present else None
        rows.append(SetStatus(name=entry.name, present=present, path=folder, disk_bytes=size, how=entry.fix))
    return rows


def fetch(name, *, source=None, sha256=None):
    """Bring a set to this machine and check it; returns its folder. A good one that is there is left alone.

    source  None: the publisher; or another http(s) address, or the path of an archive you have
    sha256  hash of an archive that is meant to differ from the published one, such as a part of it
    Raises  DataError: no network, a wrong hash, a hostile archive; nothing half done is left
    """
    entry = catalog.known(name)
    folder = catalog.home(name)
    if entry.archive is None or source is None:
        if whole(entry, folder):
            return folder
        if entry.archive is None:
            raise catalog.missing(entry, folder)
    digest = f"sha256:{sha256}" if sha256 else entry.digest
    path = folder / entry.archive
    with made(folder):
        if source is None or str(source).startswith(("http://", "https://")):
            download(entry, path, str(source or entry.url), digest)
        else:
            bring(entry, path, Path(str(source).removeprefix("file://")).expanduser(), digest)
        unpack(entry, folder, path, digest)
    return folder


@contextmanager
def made(folder):
    """Make a folder, and take it away again when nothing came into it."""
    folder.mkdir(parents=True, exist_ok=True)
    try:
        yield
    finally:
        with suppress(OSError):  # it is not empty: then it stays
            folder.rmdir()


def whole(entry, folder):
    """Whether the folder has a manifest and every file is as it says."""
    try:
        listed = manifest.read(folder, entry.fix)
        if listed:
            manifest.check(folder, listed, listed, entry.fix)
    except DataError:
        if entry.archive is None:
            raise
        return False  # fetch it anew
    return listed is not None


def download(entry, path, url, digest):
    """Fetch `url` to `path`: temporary file, hash, three tries. A good file that is there is kept."""
    import pooch
    import requests

    keeper = pooch.create(
        path=path.parent, base_url="", registry={path.name: digest}, urls={path.name: url}, retry_if_failed=TRIES - 1
    )
    try:
        keeper.fetch(path.name, downloader=read_to_end)
    except (ValueError, OSError, requests.exceptions.RequestException) as error:
        size = f"{entry.archive_bytes:,} bytes, " if digest == entry.digest else ""
        raise DataError(
            f"The data set {entry.name} could not be fetched from {url}.",
            expected=f"{path.name} ({size}{digest}) in {path.parent}",
            found=f"{type(error).__name__}: {error}"[:400],
            fix=f"`{entry.fix}` with a network; or `{entry.fix} --from FILE` with a {path.name} you have",
        ) from error


def read_to_end(url, output_file, _):
    """One try: copy what the address gives into a file; the connection is closed whatever happens."""
    import requests
    from tqdm import tqdm

    with requests.get(url, stream=True, timeout=TIMEOUT_S) as response, Path(output_file).open("wb") as file:
        response.raise_for_status()
        size = int(response.headers.get("content-length", 0)) or None
        with tqdm(total=size, unit="B", unit_scale=True, disable=None) as bar:  # disable=None: silent in a log file
            for part in response.iter_content(2**16):
                file.write(part)
                bar.update(len(part))


def bring(entry, path, source, digest):
    """Copy a local archive to its place, after comparing its hash."""
    if not source.is_file():
        raise DataError(
            f"There is no archive {source}.",
            expected=f"{entry.archive} ({digest})",
            found="a folder" if source.is_dir() else "nothing of that name",
            fix="give the path of the archive",
        )
    compare_hash(source, digest, entry)
    if source.resolve() != path.resolve():
        with atomic(path) as temporary:
            shutil.copyfile(source, temporary)
            compare_hash(temporary, digest, entry)


def compare_hash(path, digest, entry):
    """Raise DataError unless the file has this hash ("sha256:...")."""
    kind, _, wanted = digest.partition(":")
    with Path(path).open("rb") as file:
        got = hashlib.file_digest(file, kind).hexdigest()
    if got != wanted:
        hint = (
            f"{entry.fix}; or, when you mean this very file: labkit.data.fetch({entry.name!r}, source=..., sha256=...)"
        )
        raise catalog.damaged(path, digest, f"{kind}:{got}", hint)


def unpack(entry, folder, path, digest):
    """Unpack what is read unpacked, and write the manifest last: it vouches for all that came before."""
    if entry.archive.endswith(".zip"):
        file_names(path)  # refuses a hostile one; the zip is read as it is
        files = [entry.archive]
    else:
        target = extract(path, folder / entry.unpacked, top=entry.unpacked)
        files = [f"{entry.unpacked}/{name}" for name in file_names(target)]
    facts = {"name": entry.name, "source": entry.url, "archive": entry.archive, "archive_hash": digest}
    manifest.write(folder, files=files, published=digest == entry.digest, **facts)
