"""Reading and unpacking zip and tar.gz files that nobody vouches for.

Every member is checked before a byte of it is used: no absolute names, no `..`, no links or devices, no
duplicates, no more bytes than an honest archive of this size holds. Damage is found by the checksums
of the formats (each is read to its end), and a member that is cut short is an error, not a short file.
"""

import gzip
import os
import re
import shutil
import stat
import struct
import tarfile
import tempfile
import time
import unicodedata
import zipfile
import zlib
from contextlib import contextmanager
from pathlib import Path

from labkit.errors import ArchiveError

MAX_BYTES = 4 * 2**30  # unpacked
MAX_MEMBERS = 200_000  # Tiny-ImageNet has about 120,000
MAX_RATIO = 50  # unpacked bytes per packed byte; photographs and pickles are near 1
FREE_BYTES = 2**20  # below this the ratio does not matter
STALE_S = 3600
FIX = "do not use this archive; get a good copy from its publisher"


def refuse(archive, expected, found):
    return ArchiveError(f"{archive} must not be unpacked.", expected=expected, found=found, fix=FIX)


@contextmanager
def explained(archive):
    """Turn whatever a damaged archive makes the standard library raise into an ArchiveError."""
    try:
        yield
    except (tarfile.TarError, zipfile.BadZipFile, zlib.error, struct.error, EOFError, ValueError) as error:
        raise refuse(archive, "an intact zip or tar.gz", f"{type(error).__name__}: {error}") from error
    except (OSError, RuntimeError, MemoryError, OverflowError) as error:
        wanted = "an intact zip or tar.gz that is not encrypted, and room on the disk"
        raise refuse(archive, wanted, f"{type(error).__name__}: {error}") from error


def unsafe(name):
    """Why a member's name may not become a path, or None when it may."""
    parts = name.removesuffix("/").split("/")
    if name.startswith("/") or re.match("[A-Za-z]:", name):
        return "an absolute name"
    if ".." in parts:
        return "a name that climbs out with .."
    if any(part in ("", ".") or part[-1] in ". " or len(part) > 200 for part in parts):
        return "a name with an empty, dotted or overlong part"
    if re.search(r'[\x00-\x1f\\:*?"<>|]', name):
        return "a name with a character that is not safe on every system"
    return None


class Gate:
    """Keeps count while the members of one archive pass by, and refuses the first bad one."""

    def __init__(self, archive):
        self.archive, self.seen, self.bytes = archive, set(), 0
        self.allowed = min(MAX_BYTES, MAX_RATIO * Path(archive).stat().st_size + FREE_BYTES)

    def admit(self, name, size, *, plain):
        """Check one member: its name, that it is a plain file or folder, and the totals so far."""
        if reason := unsafe(name):
            raise refuse(self.archive, "names that stay inside the folder", f"{reason}: {name[:200]!r}")
        if not plain:
            raise refuse(self.archive, "plain files and folders only", f"a link, device or other: {name!r}")
        key = unicodedata.normalize("NFC", name.removesuffix("/")).casefold()
        if key in self.seen:
            raise refuse(self.archive, "each name once (also where case does not count)", f"{name!r} again")
        self.seen.add(key)
        self.bytes += size
        if len(self.seen) > MAX_MEMBERS:
            raise refuse(self.archive, f"at most {MAX_MEMBERS:,} members", "more: a bomb")
        if self.bytes > self.allowed or size < 0:
            raise refuse(self.archive, f"at most {self.allowed:,} bytes unpacked", f"{self.bytes:,} bytes: a bomb")


class Capped:
    """A stream that refuses to give more than `allowed` bytes, and remembers the last 1,024."""

    def __init__(self, stream, archive, allowed):
        self.stream, self.archive, self.left, self.tail = stream, archive, allowed, b""

    def read(self, count):
        data = self.stream.read(count)
        self.left -= len(data)
        if self.left < 0:
            raise refuse(self.archive, "no more bytes than an honest archive of this size", "a bomb")
        self.tail = (self.tail + data)[-1024:]
        return data


def members(archive):
    """Yield (name, bytes, opener) of each file in a zip or tar.gz; read each before asking for the next."""
    with Path(archive).open("rb") as file:
        magic = file.read(4)
    if magic == b"PK\x03\x04":
        yield from zip_members(archive)
    elif magic[:2] == b"\x1f\x8b":
        yield from tar_members(archive)
    else:
        raise refuse(archive, "a zip (starts with 50 4b 03 04) or tar.gz (1f 8b)", magic.hex(" ") or "an empty file")


def zip_members(archive):
    """The files of a zip, by its central directory."""
    count = Gate(archive)
    with zipfile.ZipFile(archive) as opened:
        infos = opened.infolist()
        for info in infos:
            kind = stat.S_IFMT(info.external_attr >> 16)
            count.admit(info.orig_filename, info.file_size, plain=kind in (0, stat.S_IFREG, stat.S_IFDIR))
            if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise refuse(archive, "stored or deflated members", f"method {info.compress_type}: {info.filename}")
        if sum(info.compress_size for info in infos) > Path(archive).stat().st_size:
            raise refuse(archive, "members that do not overlap", "more packed bytes than the file has: a bomb")
        for info in infos:
            if not info.is_dir():
                yield info.filename, info.file_size, lambda info=info: opened.open(info)


def tar_members(archive):
    """The files of a tar.gz in one pass, read to the end so that the checksum of gzip is compared."""
    count = Gate(archive)
    with gzip.open(archive) as unzipped:
        capped = Capped(unzipped, archive, count.allowed)
        with tarfile.open(fileobj=capped, mode="r|", bufsize=2**20) as opened:
            for member in opened:
                plain = member.type in (tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.DIRTYPE)
                count.admit(member.name, member.size, plain=plain)
                if hasattr(tarfile, "data_filter"):  # Python 3.11.4; a second opinion
                    tarfile.data_filter(member, str(Path(archive).parent))
                if not member.isdir():
                    yield member.name, member.size, lambda member=member: opened.extractfile(member)
        while capped.read(2**20):
            pass
        if capped.tail != bytes(1024):
            raise refuse(archive, "a tar that ends with its end mark", "a tar that is cut short")


def file_names(source):
    """Names of all files in a zip, tar.gz or folder, relative to it, as a list."""
    if Path(source).is_dir():
        return sorted(path.relative_to(source).as_posix() for path in walk(source))
    with explained(source):
        return [name for name, _, _ in members(source)]


def walk(folder):
    """All files below a folder; those whose name starts with a dot do not count."""
    for base, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        yield from (Path(base) / name for name in files if not name.startswith("."))


def contents(source, wanted):
    """Yield (name, bytes) of the wanted files of a zip, tar.gz or folder; a name it lacks is not an error here."""
    if Path(source).is_dir():
        for name in wanted:
            if (Path(source) / name).is_file():
                yield name, (Path(source) / name).read_bytes()
        return
    wanted = set(wanted)
    with explained(source):
        for name, size, opener in members(source):
            if name in wanted:
                with opener() as stream:
                    data = stream.read()
                same_size(source, name, size, len(data))
                yield name, data


def same_size(archive, name, size, got):
    if got != size:
        raise refuse(archive, f"{size:,} bytes in {name}", f"{got:,}: the member is cut short")


def extract(archive, target, *, top=None):
    """Unpack into the new folder `target`, whole or not at all; returns its path.

    top  name of the one folder every member must lie in; it becomes `target`

    Unpacks beside `target` and renames at the end, so a kill leaves no half tree under that name.
    An older `target` is replaced. Raises ArchiveError.
    """
    archive, target = Path(archive), Path(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    sweep(target)
    temporary = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}.", suffix=".unpacking"))
    try:
        with explained(archive):
            fill(archive, temporary, top)
        replace_folder(temporary / top if top else temporary, target)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return target


def fill(archive, folder, top):
    """Copy every member of the archive into the folder."""
    written = 0
    for name, size, opener in members(archive):
        if top and not name.startswith(f"{top}/"):
            raise refuse(archive, f"everything in the folder {top}/", name)
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with opener() as stream, path.open("xb") as file:
            shutil.copyfileobj(stream, file, 2**20)
        same_size(archive, name, size, path.stat().st_size)
        written += 1
    if not written:
        raise refuse(archive, "at least one file", "none")


def replace_folder(source, target):
    """Rename the finished folder `source` to `target`, moving an older one out of the way first."""
    source.chmod(0o755)  # mkdtemp makes private folders
    old = target.with_name(f".{target.name}.{os.getpid()}.unpacking")
    if target.exists():
        target.rename(old)
    source.rename(target)
    shutil.rmtree(old, ignore_errors=True)


def sweep(target):
    """Remove what a killed `extract` left behind more than an hour ago."""
    for left in target.parent.glob(f".{target.name}.*.unpacking"):
        if time.time() - left.stat().st_mtime > STALE_S:
            shutil.rmtree(left, ignore_errors=True)
