"""`labkit.data` as a lesson uses it, on the committed Fashion-MNIST."""

import shutil
import subprocess
import sys

import pytest
import torch

from labkit import data
from labkit.errors import DataError, LabError
from labkit.files import root


def test_fashion_mnist_is_whole_and_has_its_published_mean_and_deviation():
    train, test = data.load("fashion-mnist"), data.load("fashion-mnist", "test")
    assert train.images.shape == (60_000, 1, 28, 28) and test.images.shape == (10_000, 1, 28, 28)
    assert train.images.dtype == torch.uint8 and train.labels.dtype == torch.int64
    assert (train.labels.bincount() == 6000).all() and (test.labels.bincount() == 1000).all()
    pixels = train.images.float() / 255
    assert pixels.mean().item() == pytest.approx(train.mean[0], abs=1e-4)
    assert pixels.std().item() == pytest.approx(train.std[0], abs=1e-4)
    assert train.classes[train.labels[0]] == "ankle boot"


def test_a_limit_takes_each_class_in_proportion():
    few = data.load("fashion-mnist", "test", limit=200)
    assert (few.labels.bincount() == 20).all()
    assert torch.equal(few.images, data.load("fashion-mnist", "test").subset(200).images)


def test_importing_the_data_words_imports_nothing_heavy():
    code = (
        "import sys, labkit.data; print([name for name in ('torch', 'numpy', 'PIL', 'pooch') if "
        "name in sys.modules])"
    )
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout
        == "[]\n"
    )


@pytest.mark.parametrize("change", ["flip", "cut", "delete"])
def test_a_changed_file_of_fashion_mnist_is_found_on_load(tmp_path, monkeypatch, change):
    folder = shutil.copytree(root() / "data/fashion-mnist", tmp_path / "data/fashion-mnist")
    monkeypatch.setenv("LABKIT_ROOT", str(tmp_path))
    path = folder / "t10k-images-idx3-ubyte.gz"
    good = path.read_bytes()
    if change == "delete":
        path.unlink()
    else:
        path.write_bytes(
            good[:-1] if change == "cut" else good[:999] + bytes([good[999] ^ 16]) + good[1000:]
        )
    with pytest.raises(DataError, match="t10k-images") as caught:
        data.load("fashion-mnist", "test")
    assert caught.value.fix == "git restore data/fashion-mnist"


@pytest.mark.parametrize(
    ("name", "split", "settings", "part"),
    [
        ("mnist", "train", {}, "fashion-mnist or cifar10"),
        ("fashion-mnist", "val", {}, "train or test"),
        ("fashion-mnist", "train", {"size": 64}, "batches"),
        ("fashion-mnist", "test", {"limit": 0}, "1 to 10,000"),
        ("folder:/no/such/folder", "train", {}, "cannot be read"),
    ],
)
def test_a_wrong_call_is_answered_with_what_is_possible(name, split, settings, part):
    with pytest.raises(LabError, match=part) as caught:
        data.load(name, split, **settings)
    assert caught.value.expected and caught.value.found and caught.value.fix


def test_a_set_in_the_other_place_is_found_first(publish):
    publish("fashion-mnist")
    assert len(data.load("fashion-mnist")) == 20
