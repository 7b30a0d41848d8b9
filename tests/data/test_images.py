"""Tiny-ImageNet and folders of images, and the cache of decoded ones."""

import io
import os
from pathlib import Path

import numpy as np
import pytest
import sample_data as sample
import torch
from PIL import Image
from safetensors.torch import save_file

from labkit import data
from labkit.data import _cache, _images
from labkit.data._published import SETS
from labkit.errors import DataError
from labkit.files import root

REAL = root() / "data/tiny-imagenet/tiny-imagenet-200.zip"


def pixels(data):
    with Image.open(io.BytesIO(data)) as image:
        return torch.from_numpy(np.array(image)).permute(2, 0, 1)


def test_labels_follow_the_lists_of_the_tree(publish):
    files = publish("tiny-imagenet")
    notes = files["tiny-imagenet-200/val/val_annotations.txt"].decode().splitlines()
    validated = dict(line.split("\t")[:2] for line in notes)
    wnid = {
        "train": lambda name: name.split("/")[2],
        "test": lambda name: validated[Path(name).name],
    }
    for split, folder in (("train", "/train/"), ("test", "/val/")):
        pictures = {
            name: data for name, data in files.items() if folder in name and name.endswith(".JPEG")
        }
        of = {pixels(data).numpy().tobytes(): wnid[split](name) for name, data in pictures.items()}
        assert len(of) == len(pictures)
        read = data.load("tiny-imagenet", split)
        assert [of[image.numpy().tobytes()] for image in read.images] == [
            sample.WNIDS[label] for label in read.labels
        ]


def test_decoded_images_are_kept_and_a_damaged_copy_is_made_anew(publish, sets_here, monkeypatch):
    publish("tiny-imagenet")
    first = data.load("tiny-imagenet")
    kept = sets_here / "tiny-imagenet/decoded-train.safetensors"
    good = kept.read_bytes()
    for damaged in (
        b"",
        b"something else",
        good[:100],
        good[: len(good) // 2],
        bytes([good[0] ^ 1]) + good[1:],
    ):
        kept.write_bytes(damaged)
        again = data.load("tiny-imagenet")
        assert torch.equal(first.images, again.images) and torch.equal(first.labels, again.labels)
        assert kept.read_bytes() != damaged
    monkeypatch.setattr(_images, "_decoded", None)
    again = data.load("tiny-imagenet")  # needs no decoding
    assert torch.equal(first.images, again.images) and first.classes == again.classes


@pytest.mark.parametrize("metadata", [None, {}, {"format": "pt"}])
def test_a_kept_file_that_does_not_say_what_it_holds_is_decoded_again(tmp_path, metadata):
    sample.class_folders(tmp_path)
    foreign = {"images": torch.zeros(1), "labels": torch.zeros(1)}
    save_file(foreign, tmp_path / ".labkit-train.safetensors", metadata=metadata)
    assert len(data.load(f"folder:{tmp_path}")) == 6


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_a_named_pipe_in_place_of_a_kept_file_is_not_waited_for(tmp_path):
    sample.class_folders(tmp_path)
    os.mkfifo(tmp_path / ".labkit-train.safetensors")
    assert len(data.load(f"folder:{tmp_path}")) == len(data.load(f"folder:{tmp_path}")) == 6


def test_a_new_class_moves_the_labels_of_kept_test_images(tmp_path):
    sample.class_folders(tmp_path / "train", ("bee", "cat"))
    sample.class_folders(tmp_path / "test", ("bee", "cat"), count=1)
    assert data.load(f"folder:{tmp_path}", "test").labels.tolist() == [0, 1]
    sample.class_folders(tmp_path / "train", ("ant",))
    assert data.load(f"folder:{tmp_path}", "test").labels.tolist() == [1, 2]


def test_a_class_may_be_a_link_and_a_change_behind_it_is_seen(tmp_path):
    sample.class_folders(tmp_path / "elsewhere", ("bee",))
    sample.class_folders(tmp_path / "set", ("ant",))
    (tmp_path / "set/bee").symlink_to(tmp_path / "elsewhere/bee")
    assert len(data.load(f"folder:{tmp_path}/set")) == 6
    (tmp_path / "elsewhere/bee/0.png").write_bytes(sample.picture(77, 20, "PNG") + b"\0")
    assert torch.equal(
        data.load(f"folder:{tmp_path}/set").images[3], pixels(sample.picture(77, 20, "PNG"))
    )


@pytest.mark.skipif(os.name != "posix", reason="file names are text here")
def test_names_that_are_not_utf8_are_names_all_the_same(tmp_path):
    sample.class_folders(tmp_path, ("ant", os.fsdecode(b"caf\xe9")))
    for _ in range(2):
        assert data.load(f"folder:{tmp_path}").labels.tolist() == [0, 0, 0, 1, 1, 1]


def test_a_folder_that_cannot_be_written_is_read_all_the_same(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError("read-only")

    monkeypatch.setattr(_cache, "atomic", refuse)
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


def test_scaling_keeps_an_even_picture_even_and_cuts_out_the_middle(tmp_path):
    wide = np.zeros((10, 30, 3), dtype=np.uint8)
    wide[:, 10:20] = 200
    (tmp_path / "ant").mkdir()
    Image.fromarray(wide).save(tmp_path / "ant/0.png")
    Image.fromarray(np.full((9, 7, 3), 31, dtype=np.uint8)).save(tmp_path / "ant/1.png")
    assert (data.load(f"folder:{tmp_path}", size=10).images[0] == 200).all()
    assert (data.load(f"folder:{tmp_path}", size=5).images[1] == 31).all()


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


def test_large_files_are_decoded_side_by_side_in_the_same_order(tmp_path, monkeypatch):
    sample.class_folders(tmp_path, ("ant",), count=40)
    names = [f"ant/{i}.png" for i in range(40)]
    alone = _images.read_images(tmp_path, names)
    monkeypatch.setattr(_images, "LARGE_BYTES", 0)
    assert torch.equal(alone, _images.read_images(tmp_path, names))


@pytest.mark.skipif(not REAL.exists(), reason="needs `labkit data get tiny-imagenet`")
def test_the_real_tiny_imagenet_is_read_whole(sets_here, monkeypatch):
    (sets_here / "tiny-imagenet").mkdir(parents=True)
    (sets_here / "tiny-imagenet/tiny-imagenet-200.zip").symlink_to(REAL)
    monkeypatch.setitem(
        SETS, "tiny-imagenet", sample.pinned("tiny-imagenet", sets_here / "tiny-imagenet")
    )
    test = data.load("tiny-imagenet", "test")
    assert len(test.classes) == 200 and test.images.shape[1:] == (3, 64, 64)
    assert test.classes[test.labels[0]] != test.classes[test.labels[-1]]
    assert (test.labels.bincount() == len(test) // 200).all()
    mean = (test.images.float() / 255).mean((0, 2, 3))
    assert torch.allclose(mean, torch.tensor(test.mean), atol=0.01)
