"""Each reader against what was written, in the true formats."""

import errno
import gzip
import struct
import tempfile

import numpy as np
import pytest
import sample_data as sample
import torch
from torchvision.datasets import CIFAR10, CIFAR100

from labkit import data
from labkit.data._published import SETS
from labkit.errors import DataError
from labkit.files import root


@pytest.mark.parametrize("name", ["fashion-mnist", "cifar10", "cifar100"])
@pytest.mark.parametrize("split", ["train", "test"])
def test_a_set_comes_back_pixel_for_pixel(publish, name, split):
    images, labels = publish(name)[split]
    for _ in range(2):  # decoded, then as it was kept
        read = data.load(name, split)
        assert np.array_equal(read.images.numpy(), images) and np.array_equal(
            read.labels.numpy(), labels
        )
        assert read.images.dtype == torch.uint8 and read.labels.dtype == torch.int64
        assert len(read.classes) == {"fashion-mnist": 10, "cifar10": 10, "cifar100": 100}[name]
    assert read.classes[9] == {"fashion-mnist": "ankle boot"}.get(name, "class 9")


@pytest.mark.parametrize(("name", "dataset_class"), [("cifar10", CIFAR10), ("cifar100", CIFAR100)])
def test_the_archives_of_cifar_are_those_that_torchvision_knows(name, dataset_class):
    assert SETS[name].archive == dataset_class.filename
    assert SETS[name].url == dataset_class.url


def test_fashion_mnist_is_what_its_format_says():
    """The idx format, read here by hand: 0, 0, type, number of dimensions; the dimensions; the
    bytes.
    """
    folder = root() / "data" / "fashion-mnist"
    images = gzip.decompress((folder / "t10k-images-idx3-ubyte.gz").read_bytes())
    labels = gzip.decompress((folder / "t10k-labels-idx1-ubyte.gz").read_bytes())
    assert struct.unpack(">4B3I", images[:16]) == (0, 0, 8, 3, 10_000, 28, 28)
    assert struct.unpack(">4BI", labels[:8]) == (0, 0, 8, 1, 10_000)
    test = data.load("fashion-mnist", "test")
    assert test.images.numpy().tobytes() == images[16:]
    assert test.labels.tolist() == list(labels[8:])


@pytest.mark.parametrize("name", ["fashion-mnist", "cifar10"])
def test_unpacked_files_are_gone_when_a_set_is_read(publish, tmp_path, monkeypatch, name):
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    publish(name)
    data.load(name)
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("name", ["fashion-mnist", "cifar10"])
def test_a_disk_without_room_for_the_unpacked_files_is_named_with_what_to_do(
    publish, tmp_path, monkeypatch, name
):
    def refuse(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    publish(name)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr("torchvision.datasets.utils.extract_archive", refuse)
    with pytest.raises(DataError, match="cannot be unpacked") as refused:
        data.load(name)
    assert str(tmp_path) in refused.value.expected
    assert "No space left" in refused.value.found
    assert "TMPDIR" in refused.value.fix


@pytest.mark.parametrize(
    "program",
    [
        b"cos\nsystem\n(S'echo x > victim'\ntR.",
        b"cbuiltins\neval\n(V1\ntR.",
        b"cbuiltins\ngetattr\n(cnumpy\nndarray\nS'tofile'\ntR.",
        b"cnumpy\nfromfile\n(S'victim'\ntR.",
        b"cimportlib\nimport_module\n(S'antigravity'\ntR.",
        b"(S'true'\nios\nsystem\n.",
        b"Pvictim\n.",
    ],
)
def test_a_pickle_that_is_not_the_published_one_is_not_opened_even_in_an_archive_with_the_right_hash(
    sets_here, tmp_path, monkeypatch, program
):
    sample.write_tar(
        sets_here / "cifar10/cifar-10-python.tar.gz", {"cifar-10-batches-py/test_batch": program}
    )
    monkeypatch.setitem(SETS, "cifar10", sample.pinned("cifar10", sets_here / "cifar10"))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match="is not the published archive") as refused:
        data.load("cifar10", "test")
    assert refused.value.expected and refused.value.found
    assert refused.value.fix == "labkit data get cifar10"
    assert not (tmp_path / "victim").exists()


@pytest.mark.parametrize("name", ["data_batch_3", "batches.meta", "test_batch"])
def test_an_archive_that_lacks_one_of_its_files_is_refused(publish, sets_here, monkeypatch, name):
    publish("cifar10")
    files, _ = sample.cifar_files()
    del files[name]
    archive = sets_here / "cifar10/cifar-10-python.tar.gz"
    sample.write_tar(
        archive, {f"cifar-10-batches-py/{file}": content for file, content in files.items()}
    )
    monkeypatch.setitem(SETS, "cifar10", sample.pinned("cifar10", sets_here / "cifar10"))
    with pytest.raises(DataError, match="is not the published archive"):
        data.load("cifar10")
