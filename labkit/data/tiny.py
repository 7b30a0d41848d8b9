"""Tiny-ImageNet: a tree of JPEG files in a zip or a folder, with text files that say what they show.

    tiny-imagenet-200/wnids.txt                                  one class number a line, n01443537
    tiny-imagenet-200/words.txt                                  number, tab, names
    tiny-imagenet-200/train/<wnid>/images/<wnid>_<k>.JPEG        listed in train/<wnid>/<wnid>_boxes.txt
    tiny-imagenet-200/val/images/val_<k>.JPEG                    listed in val/val_annotations.txt

The images in test/ have no published labels: the split called "test" here is `val`.
"""

import re

from labkit.data import decode
from labkit.data.archives import contents, file_names
from labkit.data.catalog import damaged

SIDE = 64


def read(source, split, *, fix):
    """One split as (images, labels, classes).

    source   the zip, or the folder that holds tiny-imagenet-200/
    returns  uint8 (N, 3, 64, 64), int64 (N,) in the order of wnids.txt, and a name for each class
    Raises   DataError: a file is missing, unlisted or damaged, or a line cannot be read
    Source   Le and Yang 2015; https://cs231n.stanford.edu/
    """
    import torch

    there = file_names(source)
    wnids, classes = class_list(source, fix)
    listed = (train_files if split == "train" else val_files)(source, wnids, fix)
    compare(source, listed, pictures(there, split), fix)
    order = sorted(listed)
    pixels = decode.images(source, contents(source, order), order, fix)
    if pixels.shape[1:] != (3, SIDE, SIDE):
        raise damaged(f"{source}/{order[0]}", f"{SIDE} x {SIDE} pixels", f"{tuple(pixels.shape[2:])}", fix)
    return pixels, torch.tensor([listed[name] for name in order], dtype=torch.int64), classes


def pictures(there, split):
    """The JPEG files of a split among all file names."""
    folder = "train" if split == "train" else "val"
    return {name for name in there if name.startswith(f"tiny-imagenet-200/{folder}/") and name.endswith(".JPEG")}


def lines(source, name, pattern, fix):
    """The lines of one text file, each matched against `pattern`; its groups as tuples."""
    full = f"tiny-imagenet-200/{name}"
    data = dict(contents(source, [full])).get(full)
    if data is None:
        raise damaged(f"{source}/{full}", "this file", "no such file", fix)
    return matched(f"{source}/{full}", data, pattern, fix)


def matched(path, data, pattern, fix):
    rows = []
    for number, line in enumerate(data.decode("utf-8", "replace").splitlines(), 1):
        match = re.fullmatch(pattern, line)
        if not match:
            raise damaged(path, f"lines like {pattern}", f"line {number}: {line[:80]!r}", fix)
        rows.append(match.groups())
    if not rows:
        raise damaged(path, "at least one line", "an empty file", fix)
    return rows


def class_list(source, fix):
    """The class numbers in order, and a short name for each."""
    wnids = [wnid for (wnid,) in lines(source, "wnids.txt", r"(n\d{8})", fix)]
    words = dict(lines(source, "words.txt", r"(n\d{8})\t(.+)", fix))
    path = f"{source}/tiny-imagenet-200"
    if len(set(wnids)) != len(wnids):
        twice = next(wnid for wnid in wnids if wnids.count(wnid) > 1)
        raise damaged(f"{path}/wnids.txt", "each class once", f"{twice} more than once", fix)
    if unnamed := [wnid for wnid in wnids if wnid not in words]:
        raise damaged(f"{path}/words.txt", f"a name for {unnamed[0]}", "no such line", fix)
    return wnids, tuple(words[wnid].split(",")[0] for wnid in wnids)


def train_files(source, wnids, fix):
    """{file name: label} of the training images, as the box files list them."""
    boxes = {f"tiny-imagenet-200/train/{wnid}/{wnid}_boxes.txt": (label, wnid) for label, wnid in enumerate(wnids)}
    found = dict(contents(source, boxes))
    listed = {}
    for name, (label, wnid) in boxes.items():
        if name not in found:
            raise damaged(f"{source}/{name}", "this file", "no such file", fix)
        rows = matched(f"{source}/{name}", found[name], rf"({wnid}_\d+\.JPEG)(?:\t\S+){{4}}", fix)
        for (picture,) in rows:
            enter(listed, f"tiny-imagenet-200/train/{wnid}/images/{picture}", label, f"{source}/{name}", fix)
    return listed


def val_files(source, wnids, fix):
    """{file name: label} of the validation images, as val_annotations.txt lists them."""
    numbers = {wnid: label for label, wnid in enumerate(wnids)}
    path, listed = f"{source}/tiny-imagenet-200/val/val_annotations.txt", {}
    pattern = r"(val_\d+\.JPEG)\t(n\d{8})(?:\t\S+){4}"
    for picture, wnid in lines(source, "val/val_annotations.txt", pattern, fix):
        if wnid not in numbers:
            raise damaged(path, "a class of wnids.txt", f"{picture}: {wnid}", fix)
        enter(listed, f"tiny-imagenet-200/val/images/{picture}", numbers[wnid], path, fix)
    return listed


def enter(listed, name, label, path, fix):
    if name in listed:
        raise damaged(path, "each image once", f"{name} more than once", fix)
    listed[name] = label


def compare(source, listed, there, fix):
    """The images must be exactly the listed ones."""
    if lacking := sorted(listed.keys() - there):
        raise damaged(f"{source}/{lacking[0]}", "this listed image", f"{len(lacking)} images are not there", fix)
    if extra := sorted(there - listed.keys()):
        raise damaged(f"{source}/{extra[0]}", "only listed images", f"{len(extra)} images are in no list", fix)
