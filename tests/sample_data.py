"""Small data sets in the true formats, made from a seed: what the tests read where the real ones
are not.

The CIFAR files are written as Python 2 wrote them (the published ones are), opcode by opcode.
"""

import gzip
import hashlib
import io
import struct
import tarfile
import zipfile
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from unittest import mock

import numpy as np
import torchvision
from PIL import Image

from labkit.data._published import SETS
from labkit.files import sha256

WNIDS = ("n01443537", "n01629819", "n02124075")


def chance(seed=0):
    return np.random.default_rng(seed)


def published(name, folder):
    """Make the small set `name` in `folder`: (its entry with the sha256 of these files, what is
    in it).
    """
    makers = {"fashion-mnist": fashion, "cifar10": cifar, "cifar100": cifar, "tiny-imagenet": tiny}
    made = makers[name](Path(folder), name)
    return pinned(name, folder), made


def pinned(name, folder):
    """The entry of `name` with the sha256 of the files as they are in `folder` now."""
    return replace(
        SETS[name], files={file: sha256(Path(folder) / file) for file in SETS[name].files}
    )


# ---- Fashion-MNIST: gzipped idx files


def idx(array):
    """An idx file (not yet gzipped) of a uint8 array."""
    return (
        bytes([0, 0, 8, array.ndim])
        + struct.pack(f">{array.ndim}I", *array.shape)
        + array.tobytes()
    )


def fashion(folder, _=None, count=20):
    """{split: (images, labels)} and, in `folder`, the four files."""
    folder.mkdir(parents=True, exist_ok=True)
    made = {}
    for split, prefix in (("train", "train"), ("test", "t10k")):
        images = chance(len(prefix)).integers(0, 256, (count, 28, 28), dtype=np.uint8)
        labels = ((np.arange(count) + len(prefix)) % 10).astype(np.uint8)
        (folder / f"{prefix}-images-idx3-ubyte.gz").write_bytes(gzip.compress(idx(images), mtime=0))
        (folder / f"{prefix}-labels-idx1-ubyte.gz").write_bytes(gzip.compress(idx(labels), mtime=0))
        made[split] = images[:, None], labels
    return made


# ---- CIFAR: pickles as Python 2 and its numpy wrote them


def old_bytes(value):
    """A Python 2 str in a pickle of protocol 2."""
    return (
        b"U" + bytes([len(value)]) + value
        if len(value) < 256
        else b"T" + struct.pack("<i", len(value)) + value
    )


def old_int(value):
    return b"K" + bytes([value]) if 0 <= value < 256 else b"J" + struct.pack("<i", value)


def old_list(values):
    return b"](" + b"".join(values) + b"e"


def old_array(array):
    """A 2-d uint8 array as numpy of 2009 pickled it."""
    rebuild = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\nK\x00\x85U\x01btR"
    kind = b"cnumpy\ndtype\n(U\x02u1K\x00K\x01tR(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
    shape = old_int(array.shape[0]) + old_int(array.shape[1]) + b"\x86"
    return rebuild + b"(K\x01" + shape + kind + b"\x89" + old_bytes(array.tobytes()) + b"tb"


def old_pickle(pairs):
    """A pickled dictionary; keys are bytes, values are already pickled."""
    return b"\x80\x02}(" + b"".join(old_bytes(key) + value for key, value in pairs.items()) + b"u."


def cifar_batch(array, labels, key=b"labels"):
    """One batch file."""
    names = [old_bytes(b"picture_%d.png" % i) for i in range(len(array))]
    return old_pickle(
        {
            b"batch_label": old_bytes(b"batch"),
            key: old_list([old_int(label) for label in labels]),
            b"data": old_array(array),
            b"filenames": old_list(names),
        }
    )


def cifar_files(name="cifar10", count=20):
    """{file name: bytes} of a whole set, and {split: (images, labels)} of what is in it."""
    classes = 10 if name == "cifar10" else 100
    names = old_list([old_bytes(b"class %d" % i) for i in range(classes)])
    if name == "cifar10":
        parts = {"train": [f"data_batch_{i}" for i in range(1, 6)], "test": ["test_batch"]}
        files = {"batches.meta": old_pickle({b"num_vis": old_int(3072), b"label_names": names})}
    else:
        parts = {"train": ["train"], "test": ["test"]}
        coarse = old_list([old_bytes(b"group %d" % i) for i in range(20)])
        files = {"meta": old_pickle({b"fine_label_names": names, b"coarse_label_names": coarse})}
    key, made, random = (b"labels" if name == "cifar10" else b"fine_labels"), {}, chance(2)
    for split, batches in parts.items():
        images = [random.integers(0, 256, (count, 3072), dtype=np.uint8) for _ in batches]
        labels = [random.integers(0, classes, count).tolist() for _ in batches]
        files.update(
            {
                file: cifar_batch(i, n, key)
                for file, i, n in zip(batches, images, labels, strict=True)
            }
        )
        made[split] = np.concatenate(images).reshape(-1, 3, 32, 32), np.concatenate(labels)
    return files, made


@contextmanager
def cifar_accepted(archive, name):
    """Let torchvision take the files of a small archive for the published ones: it compares the
    md5 of each.
    """
    dataset_class = {
        "cifar10": torchvision.datasets.CIFAR10,
        "cifar100": torchvision.datasets.CIFAR100,
    }[name]
    md5 = {}
    with tarfile.open(archive) as opened:
        for member in opened:
            content = opened.extractfile(member).read()
            md5[Path(member.name).name] = hashlib.md5(content).hexdigest()

    def with_md5(files):
        return [[file, md5[file]] for file, _ in files]

    meta = dataset_class.meta | {"md5": md5[dataset_class.meta["filename"]]}
    known = {
        "train_list": with_md5(dataset_class.train_list),
        "test_list": with_md5(dataset_class.test_list),
    }
    with mock.patch.multiple(dataset_class, meta=meta, **known):
        yield


def cifar(folder, name="cifar10", count=20):
    """The archive of a small set in `folder`; returns {split: (images, labels)}."""
    files, made = cifar_files(name, count)
    top = {"cifar10": "cifar-10-batches-py", "cifar100": "cifar-100-python"}[name]
    named = {
        f"{top}/readme.html": b"<html>",
        **{f"{top}/{file}": data for file, data in files.items()},
    }
    write_tar(folder / SETS[name].archive, named)
    return made


# ---- Tiny-ImageNet and folders of images


def picture(seed, side=64, kind="JPEG"):
    """An image file of smooth noise."""
    small = Image.fromarray(chance(seed).integers(0, 256, (4, 4, 3), dtype=np.uint8))
    data = io.BytesIO()
    small.resize((side, side)).save(data, kind)
    return data.getvalue()


def tiny_files(train=4, val=2):
    """{name: bytes} of a small Tiny-ImageNet: `train` and `val` images a class."""
    files = {
        "wnids.txt": "".join(f"{wnid}\n" for wnid in WNIDS).encode(),
        "words.txt": "".join(
            f"{wnid}\tfirst{i}, second\n" for i, wnid in enumerate(WNIDS)
        ).encode(),
    }
    notes = ""
    for label, wnid in enumerate(WNIDS):
        names = [f"{wnid}_{i}.JPEG" for i in range(train)]
        files[f"train/{wnid}/{wnid}_boxes.txt"] = "".join(
            f"{name}\t0\t0\t9\t9\n" for name in names
        ).encode()
        for i, name in enumerate(names):
            files[f"train/{wnid}/images/{name}"] = picture(100 * label + i)
        for i in range(val):
            name = f"val_{label * val + i}.JPEG"
            files[f"val/images/{name}"] = picture(1000 + 100 * label + i)
            notes += f"{name}\t{wnid}\t0\t0\t9\t9\n"
    files["val/val_annotations.txt"] = notes.encode()
    files["test/images/test_0.JPEG"] = picture(7)
    return {f"tiny-imagenet-200/{name}": data for name, data in files.items()}


def tiny(folder, _=None):
    """The archive of a small set in `folder`; returns what is in it, {name: bytes}."""
    files = tiny_files()
    write_zip(folder / "tiny-imagenet-200.zip", files)
    return files


def class_folders(folder, classes=("ant", "bee"), count=3, side=20, kind="png"):
    """One folder a class, `count` images each."""
    files = {
        f"{name}/{i}.{kind}": picture(100 * label + i, side, "PNG" if kind == "png" else "JPEG")
        for label, name in enumerate(classes)
        for i in range(count)
    }
    write_tree(folder, files)


# ---- archives and trees of {name: bytes}


def write_tree(folder, files):
    for name, data in files.items():
        path = Path(folder) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def write_tar(path, files):
    """A tar.gz of {name: bytes}."""
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w:gz", compresslevel=1) as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))


def write_zip(path, files):
    """A zip of {name: bytes}, stored as the published one."""
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in files.items():
            archive.writestr(zipfile.ZipInfo(name), data)
