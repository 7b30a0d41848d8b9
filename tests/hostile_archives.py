"""Mutations of zip and tar.gz files."""

import gzip
import io
import stat
import struct
import tarfile
import zipfile

import numpy as np
import sample_data as sample
from hostile_damage import Mutation, edit, flip


def mutations():
    return [*tars(), *zips()]


def archive(name, make, file="a.tar.gz"):
    """`make(path)` writes the archive."""
    return Mutation(
        f"{file}: {name}",
        file,
        lambda folder: make(folder / file),
        lambda tools, folder: tools.extract(folder / file, folder / "new"),
    )


def tar_of(*entries, end=True):
    """A maker of a tar.gz from (name, type, link or bytes)."""

    def make(path):
        plain = io.BytesIO()
        with tarfile.open(fileobj=plain, mode="w", format=tarfile.PAX_FORMAT) as opened:
            for name, kind, value in entries:
                member = tarfile.TarInfo(str(path.parent / name[1:]) if name.startswith("@") else name)
                member.type, data = kind, value if kind == tarfile.REGTYPE else b""
                member.size, member.linkname = len(data), "" if kind == tarfile.REGTYPE else value
                opened.addfile(member, io.BytesIO(data))
            cut = opened.offset
        path.write_bytes(gzip.compress(plain.getvalue() if end else plain.getvalue()[:cut], 1))

    return make


def damaged_tar(change):
    def make(path):
        sample.write_tar(
            path, {f"d/{i}": bytes(sample.chance(i).integers(0, 256, 3000, dtype=np.uint8)) for i in range(5)}
        )
        edit(path, change)

    return make


def tars():
    file, link, hard = tarfile.REGTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE
    hostile = {
        "climbs out": [("../escaped", file, b"x")],
        "climbs out later": [("d/../../escaped", file, b"x")],
        "absolute name": [("@escaped", file, b"x")],
        "windows drive": [("C:/escaped", file, b"x")],
        "backslashes": [("..\\escaped", file, b"x")],
        "link outside": [("l", link, "../victim")],
        "link, then a file through it": [("l", link, ".."), ("l/victim", file, b"x")],
        "hard link": [("a", file, b"x"), ("b", hard, "a")],
        "hard link outside": [("b", hard, "../victim")],
        "named pipe": [("p", tarfile.FIFOTYPE, "")],
        "device": [("c", tarfile.CHRTYPE, "")],
        "same name twice": [("a", file, b"x"), ("a", file, b"y")],
        "same name in capitals": [("a", file, b"x"), ("A", file, b"y")],
        "file that is also a folder": [("a", file, b"x"), ("a/b", file, b"y")],
        "dot name": [("./a", file, b"x")],
        "name with a line break": [("a\nb", file, b"x")],
        "name too long": [("a" * 300, file, b"x")],
        "bomb of zeros": [("a", file, bytes(20_000_000))],
        "nothing inside": [],
    }
    for name, entries in hostile.items():
        yield archive(name, tar_of(*entries))
    yield archive("end mark missing", tar_of(("a", file, b"x" * 512), end=False))
    for at in (0, 0.2, 0.5, 0.8, 0.9996):
        yield archive(f"bit flipped at {at}", damaged_tar(lambda data, at=at: flip(data, at)))
    for share in (0, 0.3, 0.9, 0.9999):
        yield archive(f"cut to {share}", damaged_tar(lambda data, share=share: data[: int(share * len(data))]))
    yield archive("text", lambda path: path.write_text("404 not found"))


def zip_of(*entries, change=lambda data: data, **settings):
    """A maker of a zip from (name, bytes, file type)."""

    def make(path):
        with zipfile.ZipFile(path, "w", **settings) as opened:
            for name, data, kind in entries:
                info = zipfile.ZipInfo(str(path.parent / name[1:]) if name.startswith("@") else name)
                info.external_attr = (kind | 0o644) << 16
                opened.writestr(info, data, compress_type=opened.compression)
        edit(path, change)

    return make


def zips():
    file = stat.S_IFREG
    hostile = {
        "climbs out": [("../escaped", b"x", file)],
        "absolute name": [("@escaped", b"x", file)],
        "link": [("l", b"../victim", stat.S_IFLNK)],
        "device": [("d", b"", stat.S_IFCHR)],
        "same name in capitals": [("a", b"x", file), ("A", b"y", file)],
        "empty part in a name": [("a//b", b"x", file)],
    }
    for name, entries in hostile.items():
        yield archive(name, zip_of(*entries), "a.zip")
    body = bytes(sample.chance(3).integers(0, 256, 3000, dtype=np.uint8))
    one = ("a", body, file)
    yield archive("bomb of zeros", zip_of(("a", bytes(20_000_000), file), compression=zipfile.ZIP_DEFLATED), "a.zip")
    yield archive("odd method", zip_of(one, compression=zipfile.ZIP_LZMA), "a.zip")
    for at in (0.1, 0.5, 0.9):
        yield archive(f"bit flipped at {at}", zip_of(one, change=lambda data, at=at: flip(data, at)), "a.zip")
    for share in (0.3, 0.97):
        yield archive(f"cut to {share}", zip_of(one, change=lambda data, s=share: data[: int(s * len(data))]), "a.zip")
    longer = lambda data: data.replace(struct.pack("<II", 3000, 3000), struct.pack("<II", 3000, 4000))  # noqa: E731
    yield archive("member shorter than it says", zip_of(one, change=longer), "a.zip")
    yield archive("encrypted", zip_of(one, change=lambda d: d.replace(b"\x14\0\0\0\0\0", b"\x14\0\1\0\0\0")), "a.zip")
