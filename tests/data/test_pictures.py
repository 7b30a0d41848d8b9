"""Tiny-ImageNet and folders of images, and the cache of decoded ones."""

import io
import os
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest
import sample_data as sample
import torch
from PIL import Image

from labkit import data
from labkit.data import catalog, decode, sets, tiny
from labkit.errors import DataError

REAL = os.environ.get("LABKIT_TINY_IMAGENET_ZIP")


def pixels(data):
    with Image.open(io.BytesIO(data)) as image:
        return torch.from_numpy(np.array(image)).permute(2, 0, 1)


@pytest.mark.parametrize("split", ["train", "test"])
def test_tiny_imagenet_reads_the_same_from_the_zip_and_the_tree(tmp_path, split):
    files = sample.tiny_files()
    sample.write_zip(tmp_path / "a.zip", files)
    sample.write_tree(tmp_path / "tree", files)
    images, labels, classes = tiny.read(tmp_path / "a.zip", split, fix="")
    others = tiny.read(tmp_path / "tree", split, fix="")
    assert torch.equal(images, others[0]) and torch.equal(labels, others[1])
    assert classes == ("first0", "first1", "first2")
    assert images.shape == ({"train": 12, "test": 6}[split], 3, 64, 64)


def test_each_tiny_image_has_its_own_label():
    files = sample.tiny_files()
    first = {pixels(data).numpy().tobytes(): name.split("/")[2] for name, data in files.items() if "/images/n0" in name}
    assert len(first) == 12


def test_labels_follow_the_lists_of_the_tree(tmp_path):
    files = sample.tiny_files()
    sample.write_tree(tmp_path, files)
    images, labels, _ = tiny.read(tmp_path, "train", fix="")
    of = {pixels(data).numpy().tobytes(): name.split("/")[2] for name, data in files.items() if "/images/n0" in name}
    assert [of[image.numpy().tobytes()] for image in images] == [sample.WNIDS[label] for label in labels]
    images, labels, _ = tiny.read(tmp_path, "test", fix="")
    notes = dict(
        line.split("\t")[:2] for line in files["tiny-imagenet-200/val/val_annotations.txt"].decode().splitlines()
    )
    of = {
        pixels(data).numpy().tobytes(): notes[Path(name).name] for name, data in files.items() if "/val/images/" in name
    }
    assert [of[image.numpy().tobytes()] for image in images] == [sample.WNIDS[label] for label in labels]


def test_decoded_images_are_kept_and_a_damaged_copy_is_made_anew(tmp_path, monkeypatch):
    sample.write_tree(tmp_path, sample.tiny_files())
    first = sets.read(catalog.SETS["tiny-imagenet"], "train", tmp_path)
    kept = tmp_path / "decoded-train.safetensors"
    again = sets.read(catalog.SETS["tiny-imagenet"], "train", tmp_path)
    assert torch.equal(first.images, again.images) and first.classes == again.classes
    good = kept.read_bytes()
    for at in (0, 100, len(good) // 2, len(good) - 1):
        kept.write_bytes(good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :])
        again = sets.read(catalog.SETS["tiny-imagenet"], "train", tmp_path)
        assert torch.equal(first.images, again.images) and torch.equal(first.labels, again.labels)
        assert decode.read_cache(kept, first.digest) is not None
    monkeypatch.setattr(decode, "images", None)
    sets.read(catalog.SETS["tiny-imagenet"], "train", tmp_path)  # needs no decoding


def test_decoded_images_of_other_files_are_not_used(tmp_path):
    files = sample.tiny_files()
    sample.write_tree(tmp_path, files)
    first = sets.read(catalog.SETS["tiny-imagenet"], "train", tmp_path)
    name = "tiny-imagenet-200/train/n01443537/images/n01443537_0.JPEG"
    (tmp_path / name).write_bytes(sample.picture(77) + b"\0")
    second = sets.read(catalog.SETS["tiny-imagenet"], "train", tmp_path)
    assert torch.equal(second.images[0], pixels(sample.picture(77)))
    assert not torch.equal(first.images[0], second.images[0])
    assert first.digest != second.digest


def test_a_folder_that_cannot_be_written_is_read_all_the_same(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError("read-only")

    monkeypatch.setattr(decode, "write_cache", refuse)
    sample.class_folders(tmp_path)
    assert len(data.load(f"folder:{tmp_path}")) == 6


@pytest.mark.parametrize("level", ["test", "val"])
def test_a_folder_may_have_train_and_test_levels(tmp_path, level):
    sample.class_folders(tmp_path / "train", ("ant", "bee", "cat"))
    sample.class_folders(tmp_path / level, ("cat", "ant"), count=2)
    train, test = (data.load(f"folder:{tmp_path}", split) for split in ("train", "test"))
    assert train.classes == test.classes == ("ant", "bee", "cat")
    assert train.labels.tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert test.labels.tolist() == [0, 0, 2, 2]
    assert torch.equal(test.images[2], pixels((tmp_path / level / "cat/0.png").read_bytes()))


def test_images_of_several_sizes_are_brought_to_one(tmp_path):
    sample.class_folders(tmp_path, ("ant",), side=20)
    (tmp_path / "ant/wide.png").write_bytes(sample.picture(3, 40, "PNG"))
    with pytest.raises(DataError, match="size=64"):
        data.load(f"folder:{tmp_path}")
    assert data.load(f"folder:{tmp_path}", size=16).images.shape == (4, 3, 16, 16)
    assert data.load(f"folder:{tmp_path}", size=48).images.shape == (4, 3, 48, 48)


def test_scaling_keeps_an_even_picture_even_and_cuts_out_the_middle():
    image = torch.zeros(3, 10, 30, dtype=torch.uint8)
    image[:, :, 10:20] = 200
    assert (decode.squared(image, 10) == 200).all()
    assert (decode.squared(torch.full((3, 9, 7), 31, dtype=torch.uint8), 5) == 31).all()


def test_grey_and_lying_photographs_become_upright_colour(tmp_path):
    upright = Image.fromarray(np.arange(12, dtype=np.uint8).reshape(3, 4) * 20)
    for name, turn in (("0.png", 1), ("1.png", 6)):
        exif = Image.Exif()
        exif[0x0112] = turn
        stored = upright if turn == 1 else upright.rotate(90, expand=True)
        (tmp_path / "ant").mkdir(exist_ok=True)
        stored.save(tmp_path / "ant" / name, exif=exif)
    images = data.load(f"folder:{tmp_path}").images
    assert images.shape == (2, 3, 3, 4)
    assert torch.equal(images[0], images[1])


def test_large_files_are_decoded_side_by_side_in_the_same_order(monkeypatch):
    named = {str(i): sample.picture(i) for i in range(40)}
    alone = decode.images("a", iter(named.items()), list(named), "")
    monkeypatch.setattr(decode, "LARGE_BYTES", 0)
    assert torch.equal(alone, decode.images("a", iter(named.items()), list(named), ""))


@pytest.mark.skipif(not REAL, reason="LABKIT_TINY_IMAGENET_ZIP names no zip of real Tiny-ImageNet")
def test_the_real_tiny_imagenet_is_read_whole(tmp_path, monkeypatch):
    monkeypatch.setenv("LABKIT_DATA", str(tmp_path))
    data.fetch("tiny-imagenet", source=REAL, sha256=sha256(Path(REAL).read_bytes()).hexdigest())
    test = data.load("tiny-imagenet", "test")
    assert len(test.classes) == 200 and test.images.shape[1:] == (3, 64, 64)
    assert test.classes[test.labels[0]] != test.classes[test.labels[-1]]
    assert (test.labels.bincount() == len(test) // 200).all()
    mean = (test.images.float() / 255).mean((0, 2, 3))
    assert torch.allclose(mean, torch.tensor(test.mean), atol=0.01)
