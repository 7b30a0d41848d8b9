"""Damaged and hostile data files, and the judge that says whether a reader withstands them.

`survey(folder)` tries every mutation against `labkit.data.load`, each in a folder of its own below
`folder`, and returns {name: None, or what went wrong}. Withstood means: a LabError whose text names
the file, what was expected, what was found and what to do; and not one file below that folder is
new, gone or changed.

`survey(folder, read_naively, programs())` does the same to a reader that trusts everything. It must
do badly, or these mutations prove nothing.
"""

import contextlib
import io
import os
import pickle
import stat
import struct
import tarfile
import warnings
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from unittest import mock

import sample_data as sample

from labkit.data import fetch, load
from labkit.data._published import SETS
from labkit.errors import LabError


@dataclass(frozen=True)
class Mutation:
    """One kind of damage.

    name    what is wrong, in words
    file    a part of the file name the error must show
    make    (folder): makes the input, damaged, in an empty folder; returns the entry of a published
            set, or None
    attack  (read, folder): uses it
    """

    name: str
    file: str
    make: Callable
    attack: Callable


def mutations():
    """All of them, more than a hundred."""
    return [*damaged_files(), *programs(), *hostile_archives(), *brought(), *folders()]


def survey(folder, read=load, chosen=None):
    """{mutation name: None, or what went wrong} of the chosen mutations, by default all."""
    results = {}
    for number, mutation in enumerate(chosen or mutations()):
        assert mutation.name not in results, f"two mutations are called {mutation.name}"
        place = Path(folder) / f"{number:03}"
        place.mkdir(parents=True)
        results[mutation.name] = trial(mutation, place, read)
    return results


def trial(mutation, place, read):
    """None when `read` withstands the mutation, else what went wrong."""
    (place / "victim").write_text("must stay as it is")
    entry = mutation.make(place)
    before = snapshot(place)
    try:
        # where a program hidden in a file would write
        with (
            contextlib.chdir(place),
            mock.patch.dict(os.environ, LABKIT_ROOT=str(place)),
            mock.patch.dict(SETS),
        ):
            if entry:
                SETS[entry.name] = entry
            mutation.attack(read, place)
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
        seen[str(path)] = (
            sha256(path.read_bytes()).hexdigest() if path.is_file() and kind == "file" else kind
        )
    return seen


def read_naively(name, _):
    """Unpack the archive of a set where it lies, and run its pickles."""
    folder = Path(os.environ["LABKIT_ROOT"]) / "data" / name
    with tarfile.open(folder / SETS[name].archive) as opened:
        opened.extractall(
            folder, **({"filter": "fully_trusted"} if hasattr(tarfile, "data_filter") else {})
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return [
            pickle.loads(path.read_bytes(), encoding="bytes") for path in folder.rglob("*_batch*")
        ]


# ---- ways to break a file


def flip(data, at):
    """The bytes with one bit turned; `at` is a share of the length."""
    place = min(int(at * len(data)), len(data) - 1)
    return data[:place] + bytes([data[place] ^ 4]) + data[place + 1 :]


def cut(data, share):
    """So much of the bytes."""
    return data[: int(share * len(data))]


def edit(path, change):
    """Rewrite a file with `change(bytes)`."""
    path.write_bytes(change(path.read_bytes()))


def damages():
    """{what is wrong: (path) that does it} of any file."""
    for at in (0, 0.1, 0.3, 0.5, 0.7, 0.9, 1):
        yield f"bit flipped at {at}", lambda path, at=at: edit(path, lambda data: flip(data, at))
    for share in (0, 0.5, 0.99):
        yield f"cut to {share}", lambda path, share=share: edit(path, lambda data: cut(data, share))
    yield "longer", lambda path: edit(path, lambda data: data + b"\0")
    yield "a page that says 404", lambda path: path.write_text("<html>404 not found")
    yield "missing", Path.unlink
    yield "a folder", lambda path: (path.unlink(), path.mkdir())
    yield "a link that leads nowhere", lambda path: (path.unlink(), path.symlink_to("nowhere"))
    if hasattr(os, "mkfifo"):
        yield "a named pipe", lambda path: (path.unlink(), os.mkfifo(path))


# ---- published sets


def published(name, file, what, damage, split="train"):
    """A small set `name` with the sha256 of its good files; `damage(path)` then spoils `file`."""

    def make(place):
        entry, _ = sample.published(name, place / "data" / name)
        damage(place / "data" / name / file)
        return entry

    return Mutation(f"{file}: {what}", file, make, lambda read, _: read(name, split))


def damaged_files():
    fashion = [("fashion-mnist", file) for file in list(SETS["fashion-mnist"].files)[:2]]
    for name, file in [*fashion, *((name, SETS[name].archive) for name in SETS if SETS[name].url)]:
        for what, damage in damages():
            yield published(name, file, what, damage)


def programs():
    """Archives that are not the published one: names that climb out, and programs in place of
    data.
    """
    tar, link, pipe = SETS["cifar10"].archive, tarfile.SYMTYPE, tarfile.FIFOTYPE
    members = {
        "climbs out": [("../escaped", b"x")],
        "climbs out later": [("d/../../escaped", b"x")],
        "a file through a link": [("l", link, ".."), ("l/victim", b"x")],
        "a link outside": [("l", link, "../victim")],
        "a name that is not UTF-8": [("caf\udce9/data_batch_1", b"x")],
        "a pipe": [("p", pipe, "")],
    }
    act = b"open('victim','w').write('x')"
    calls = {
        "os.system": b"cos\nsystem\n(S'echo x > victim'\ntR.",
        "posix.system": b"cposix\nsystem\n(S'echo x > victim'\ntR.",
        "eval": b"cbuiltins\neval\n(V" + act + b"\ntR.",
        "exec by its old name": b"c__builtin__\nexec\n(V" + act + b"\ntR.",
        "an instance": b"(S'echo x > victim'\nios\nsystem\n.",
    }
    members.update(
        {f"calls {name}": [("d/data_batch_1", program)] for name, program in calls.items()}
    )
    for what, entries in members.items():
        yield published(
            "cifar10", tar, what, lambda path, entries=entries: write_tar(path, entries)
        )


def write_tar(path, entries):
    """A tar.gz of (name, bytes) and (name, type, link)."""
    with tarfile.open(path, "w:gz", compresslevel=1) as archive:
        for name, *value in entries:
            member = tarfile.TarInfo(name)
            data = value[0] if len(value) == 1 else b""
            if len(value) == 2:
                member.type, member.linkname = value
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))


def hostile_archives():
    """Zips that are not the published one, and a bomb of each kind."""
    zipped = {
        "climbs out": ("../escaped", b"x", stat.S_IFREG),
        "a link": ("l", b"../victim", stat.S_IFLNK),
        "a device": ("d", b"", stat.S_IFCHR),
        "a bomb": ("a", bytes(20_000_000), stat.S_IFREG),
    }
    for what, (name, data, kind) in zipped.items():

        def write(path, name=name, data=data, kind=kind):
            with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
                info = zipfile.ZipInfo(name)
                info.external_attr = (kind | 0o644) << 16
                archive.writestr(info, data, compress_type=zipfile.ZIP_DEFLATED)

        yield published("tiny-imagenet", SETS["tiny-imagenet"].archive, what, write)
    bomb = [("a", bytes(20_000_000))]
    yield published(
        "cifar100", SETS["cifar100"].archive, "a bomb", lambda path: write_tar(path, bomb)
    )


def brought():
    """Archives that somebody wants to bring by `fetch`."""
    for name in ("cifar10", "cifar100", "tiny-imagenet"):
        for what, damage in damages():

            def make(place, name=name, damage=damage):
                entry, _ = sample.published(name, place / "have")
                (place / "have" / entry.archive).rename(place / "brought")
                damage(place / "brought")
                return entry

            attack = lambda _, place, name=name: fetch(name, source=place / "brought")  # noqa: E731
            yield Mutation(f"{name} brought: {what}", "brought", make, attack)


# ---- folders of images


def folders():
    def case(what, file, damage, split="train"):
        def make(place):
            sample.class_folders(place / "set/train")
            sample.class_folders(place / "set/test", count=1)
            damage(place / "set")

        return Mutation(
            f"folder: {what}",
            file,
            make,
            lambda read, place: read(f"folder:{place / 'set'}", split),
        )

    def huge(data):
        """A PNG that says it has 10^10 pixels."""
        head = b"IHDR" + struct.pack(">II", 100_000, 100_000) + data[24:29]
        return data[:12] + head + struct.pack(">I", zlib.crc32(head)) + data[33:]

    photo = "train/ant/1.png"
    spoilt = {
        "in the header": lambda data: flip(data, 20 / len(data)),
        "in the pixels": lambda data: flip(data, 0.5),
    }
    spoilt |= {"cut": lambda data: cut(data, 0.5), "a bomb": huge}
    for where, change in spoilt.items():  # one in two: a few would be left out
        damage = lambda d, change=change: edit(d / "test/ant/0.png", change)  # noqa: E731
        yield case(f"image spoilt, {where}", "0.png", damage, "test")
    yield case(
        "image of another size",
        "1.png",
        lambda d: (d / photo).write_bytes(sample.picture(1, 21, "PNG")),
    )
    yield case(
        "stray image", "stray.png", lambda d: (d / "train/stray.png").write_bytes(sample.picture(1))
    )
    yield case("empty class", "cat", lambda d: (d / "train/cat").mkdir())
    yield case(
        "class only in test", "cat", lambda d: sample.class_folders(d / "test", ("cat",)), "test"
    )
    yield case("test split missing", "test", lambda d: (d / "test").rename(d / "other"), "test")
    yield case("missing", "set", lambda d: d.rename(d.with_name("other")))
    for what, place in {
        "a link to its folder": lambda path: path.symlink_to("."),
        "a folder": Path.mkdir,
    }.items():
        yield case(
            f"{what} among the images",
            "odd.png",
            lambda d, place=place: place(d / "train/ant/odd.png"),
        )
