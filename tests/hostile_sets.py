"""Mutations of the Fashion-MNIST and CIFAR files."""

import gzip
import json
import pickle
import struct

import numpy as np
import sample_data as sample
from hostile_damage import Mutation, cut, edit, flip

IMAGES, LABELS = "train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz"
TEST_LABELS = "t10k-labels-idx1-ubyte.gz"


def mutations():
    return [*fashion_files(), *fashion_manifest(), *fashion_structure(), *cifar_files(), *cifar_pickles()]


# ---- Fashion-MNIST


def fashion(name, file, damage):
    def make(folder):
        sample.fashion(folder)
        damage(folder)

    return Mutation(f"fashion: {name}", file, make, lambda tools, folder: tools.read("fashion-mnist", "train", folder))


def fashion_files():
    for file in (IMAGES, LABELS):
        for at in (0, 0.1, 0.3, 0.5, 0.7, 0.9, 1):
            yield fashion(
                f"bit flipped at {at} of {file}", file, lambda d, f=file, at=at: edit(d / f, lambda b: flip(b, at))
            )
        for share in (0, 0.5, 0.99):
            yield fashion(f"{file} cut to {share}", file, lambda d, f=file, s=share: edit(d / f, cut(s)))
        yield fashion(f"{file} missing", file, lambda d, f=file: (d / f).unlink())
        yield fashion(f"{file} longer", file, lambda d, f=file: edit(d / f, lambda b: b + b"\0"))
    yield fashion("train and test swapped", LABELS, lambda d: (d / LABELS).write_bytes((d / TEST_LABELS).read_bytes()))
    yield fashion("images and labels swapped", IMAGES, lambda d: (d / IMAGES).write_bytes((d / LABELS).read_bytes()))


def fashion_manifest():
    pages = {
        "is not JSON": "{",
        "is a list": "[]",
        "has no files": "{}",
        "lists nothing": '{"files": {}}',
        "lists other files": json.dumps({"files": {"a": {"bytes": 1, "sha256": "0" * 64}}}),
        "has a negative size": json.dumps({"files": {IMAGES: {"bytes": -1, "sha256": "0" * 64}}}),
        "has a size in words": json.dumps({"files": {IMAGES: {"bytes": "many", "sha256": "0" * 64}}}),
        "has a short hash": json.dumps({"files": {IMAGES: {"bytes": 1, "sha256": "00"}}}),
        "has a name outside": json.dumps({"files": {"../victim": {"bytes": 1, "sha256": "0" * 64}}}),
        "is nested without end": "[" * 100_000,
    }
    for name, text in pages.items():
        yield fashion(f"manifest {name}", "manifest.json", lambda d, t=text: (d / "manifest.json").write_text(t))
    yield fashion("manifest missing", "manifest.json", lambda d: (d / "manifest.json").unlink())


def fashion_structure():
    """Files that agree with their manifest and are still not what they should be."""
    images, labels = np.zeros((20, 28, 28), np.uint8), np.zeros(20, np.uint8)
    good = sample.idx(images)
    packed = {
        "magic of another format": (IMAGES, gzip.compress(b"GIF8" + good[4:])),
        "magic of signed bytes": (IMAGES, gzip.compress(sample.idx(images, bytes([0, 0, 9, 3])))),
        "magic of two dimensions": (IMAGES, gzip.compress(sample.idx(images, bytes([0, 0, 8, 2])))),
        "more images promised": (IMAGES, gzip.compress(good[:4] + struct.pack(">I", 21) + good[8:])),
        "fewer images promised": (IMAGES, gzip.compress(good[:4] + struct.pack(">I", 19) + good[8:])),
        "no images promised": (IMAGES, gzip.compress(good[:4] + struct.pack(">I", 0) + good[8:])),
        "four billion images promised": (IMAGES, gzip.compress(good[:4] + b"\xff" * 12 + good[16:])),
        "header cut": (IMAGES, gzip.compress(good[:9])),
        "not gzip": (IMAGES, good),
        "gzip checksum wrong": (IMAGES, flip(gzip.compress(good), 1 - 6 / len(gzip.compress(good)))),
        "gzip cut": (IMAGES, gzip.compress(good)[:-9]),
        "gzip with a tail": (IMAGES, gzip.compress(good) + b"tail"),
        "label out of range": (LABELS, gzip.compress(sample.idx(labels + 10))),
        "fewer labels than images": (LABELS, gzip.compress(sample.idx(labels[:19]))),
    }
    for name, (file, data) in packed.items():

        def damage(folder, file=file, data=data):
            (folder / file).write_bytes(data)
            sample.write_manifest(folder, [IMAGES, LABELS])

        yield fashion(name, file, damage)


# ---- CIFAR, unpacked and without a manifest


def cifar(name, file, change):
    """`change` gets {file name: bytes} of a good set and alters it."""

    def make(folder):
        files, _ = sample.cifar_files()
        change(files)
        sample.write_tree(folder / "cifar-10-batches-py", files)

    return Mutation(f"cifar: {name}", file, make, lambda tools, folder: tools.read("cifar10", "train", folder))


def replaced(name, data, file="data_batch_3"):
    return cifar(name, file, lambda files: files.update({file: data}))


def cifar_files():
    rows, labels = np.zeros((20, 3072), np.uint8), [1] * 20
    good = sample.cifar_batch(rows, labels)
    yield cifar("batch missing", "data_batch_3", lambda files: files.pop("data_batch_3"))
    yield cifar("meta missing", "batches.meta", lambda files: files.pop("batches.meta"))
    yield cifar("batch renamed", "data_batch_3", lambda files: files.update(data_batch_9=files.pop("data_batch_3")))
    yield cifar(
        "meta in place of a batch", "data_batch_3", lambda files: files.update(data_batch_3=files["batches.meta"])
    )
    yield cifar("batch in place of the meta", "batches.meta", lambda files: files.update({"batches.meta": good}))
    for share in (0, 0.01, 0.5, 0.999):
        yield replaced(f"batch cut to {share}", cut(share)(good))
    yield replaced("text", b"not a pickle")
    yield replaced("frame broken", b"\x80\x09" + good[2:])
    yield replaced("a list", pickle.dumps([1]))
    yield replaced("label too large", sample.cifar_batch(rows, [1] * 19 + [10]))
    yield replaced("label negative", sample.cifar_batch(rows, [1] * 19 + [-1]))
    yield replaced("one label too few", sample.cifar_batch(rows, labels[:19]))
    yield replaced("labels under another name", sample.cifar_batch(rows, labels, b"fine_labels"))
    yield replaced("rows too short", sample.cifar_batch(rows[:, :3071], labels))
    yield replaced("no rows", sample.cifar_batch(rows[:0], []))
    claims = sample.old_array(rows).replace(b"K\x14J", b"K\x15J")  # 21 rows
    yield replaced("fewer bytes than its shape", good.replace(sample.old_array(rows), claims))
    yield replaced("not unsigned bytes", good.replace(b"U\x02u1", b"U\x02i1"))
    yield replaced("no data", sample.old_pickle({b"labels": sample.old_list([sample.old_int(1)])}))
    yield replaced("labels in words", pickle.dumps({b"data": 1, b"labels": ["a"]}, 2))
    twice = sample.old_pickle({b"label_names": sample.old_list([sample.old_bytes(b"cat")] * 2)})
    yield replaced("two classes of one name", twice, "batches.meta")


def cifar_pickles():
    """Programs in place of data. Each would write into `victim`, were it run."""
    act = b"open('victim','w').write('x')"
    calls = {
        "os.system": b"cos\nsystem\n(S'echo x > victim'\ntR.",
        "posix.system": b"cposix\nsystem\n(S'echo x > victim'\ntR.",
        "eval": b"cbuiltins\neval\n(V" + act + b"\ntR.",
        "exec": b"cbuiltins\nexec\n(V" + act + b"\ntR.",
        "eval by its old name": b"c__builtin__\neval\n(V" + act + b"\ntR.",
        "subprocess": b"csubprocess\ncall\n((lS'true'\natR.",
        "getattr": b"cbuiltins\ngetattr\n(cnumpy\nndarray\nS'tofile'\ntR.",
        "a class of numpy": b"cnumpy\nfromfile\n(S'victim'\ntR.",
        "importlib": b"cimportlib\nimport_module\n(S'antigravity'\ntR.",
        "a codec": b"c_codecs\nencode\n(Vx\nS'rot13'\ntR.",
        "an instance": b"(S'true'\nios\nsystem\n.",
        "a persistent name": b"Pvictim\n.",
        "an altered name": b"cnumpy\ndtype\n}S'__doc__'\nS'x'\nsb.",
        "an extension code": b"\x82\x01.",
    }
    for name, program in calls.items():
        yield replaced(f"pickle calls {name}", program)
