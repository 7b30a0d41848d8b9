"""Mutations of Tiny-ImageNet and of folders of images."""

import struct
import zlib
from pathlib import Path

import sample_data as sample
from hostile_damage import Mutation, edit, flip


def mutations():
    return [*tiny(), *folders()]


def tiny(prefix="tiny-imagenet-200/"):
    def case(name, file, change, split="train"):
        def make(folder):
            files = sample.tiny_files()
            change(files)
            sample.write_tree(folder, files)

        attack = lambda tools, folder: tools.read("tiny-imagenet", split, folder)  # noqa: E731
        return Mutation(f"tiny: {name}", file, make, attack)

    def put(file, data):
        return lambda files: files.update({prefix + file: data(files[prefix + file]) if callable(data) else data})

    def drop(file):
        return lambda files: files.pop(prefix + file)

    boxes = "train/n01443537/n01443537_boxes.txt"
    photo = "train/n01443537/images/n01443537_1.JPEG"
    notes = "val/val_annotations.txt"
    for file in ("wnids.txt", "words.txt", boxes, photo):
        yield case(f"{file} missing", Path(file).name, drop(file))
    for file in ("wnids.txt", "words.txt", boxes):
        yield case(f"bad line in {file}", Path(file).name, put(file, lambda data: data + b"what?\n"))
        yield case(f"{file} empty", Path(file).name, put(file, b""))
    yield case("class twice", "wnids.txt", put("wnids.txt", lambda data: data + b"n01443537\n"))
    yield case("class without a name", "words.txt", put("wnids.txt", lambda data: data + b"n09999999\n"))
    yield case("image listed twice", "n01443537_boxes.txt", put(boxes, lambda data: data + data))
    extra = {prefix + "train/n01443537/images/n01443537_9.JPEG": sample.picture(1)}
    yield case("image not listed", "n01443537_9.JPEG", lambda files: files.update(extra))
    yield case("annotations missing", "val_annotations.txt", drop(notes), "test")
    yield case("annotation cut", "val_annotations.txt", put(notes, lambda data: data[:-12]), "test")
    yield case(
        "annotation of an unknown class",
        "val_annotations.txt",
        put(notes, lambda d: d.replace(b"n01443537", b"n09999999")),
        "test",
    )
    yield case("annotated image missing", "val_1.JPEG", drop("val/images/val_1.JPEG"), "test")
    yield case("image is text", "n01443537_1.JPEG", put(photo, b"<html>"))
    yield case("image empty", "n01443537_1.JPEG", put(photo, b""))
    yield case("image cut", "n01443537_1.JPEG", put(photo, lambda data: data[: len(data) // 2]))
    yield case("image without its start", "n01443537_1.JPEG", put(photo, lambda data: data[9:]))
    yield case("image of another size", "n01443537_1.JPEG", put(photo, sample.picture(1, side=32)))


def folders():
    def case(name, file, damage, split="train"):
        def make(folder):
            sample.class_folders(folder / "set/train")
            sample.class_folders(folder / "set/test", count=1)
            damage(folder / "set")

        attack = lambda tools, folder: tools.read("folder", split, folder / "set")  # noqa: E731
        return Mutation(f"folder: {name}", file, make, attack)

    def huge(data):
        """A PNG that says it has 10^10 pixels."""
        head = b"IHDR" + struct.pack(">II", 100_000, 100_000) + data[24:29]
        return data[:12] + head + struct.pack(">I", zlib.crc32(head)) + data[33:]

    photo = "train/ant/1.png"
    yield case("image cut", "1.png", lambda d: edit(d / photo, lambda data: data[: len(data) // 2]))
    yield case("bit flipped in the header", "1.png", lambda d: edit(d / photo, lambda data: flip(data, 20 / len(data))))
    yield case("bit flipped in the pixels", "1.png", lambda d: edit(d / photo, lambda data: flip(data, 0.5)))
    yield case("image is a bomb", "1.png", lambda d: edit(d / photo, huge))
    yield case("image of another size", "1.png", lambda d: (d / photo).write_bytes(sample.picture(1, 21, "PNG")))
    yield case("stray text", "notes.txt", lambda d: (d / "train/ant/notes.txt").write_text("x"))
    yield case(
        "image outside the classes", "stray.png", lambda d: (d / "train/stray.png").write_bytes(sample.picture(1))
    )
    yield case("empty class", "cat", lambda d: (d / "train/cat").mkdir())
    yield case("class only in test", "cat", lambda d: sample.class_folders(d / "test", ("cat",)), "test")
    yield case("test split missing", "test", lambda d: (d / "test").rename(d / "other"), "test")
