"""Each reader against what was written, in the true formats."""

import pickle
import tracemalloc
import warnings
from pathlib import Path

import numpy as np
import pytest
import sample_data as sample
from torchvision.datasets import CIFAR10, MNIST

from labkit.data import catalog, cifar, idx, sets
from labkit.errors import DataError


def same(images, labels, truth):
    return np.array_equal(images.numpy(), truth[0]) and np.array_equal(labels.numpy(), truth[1])


@pytest.mark.parametrize("split", ["train", "test"])
def test_an_idx_set_comes_back_pixel_for_pixel(tmp_path, split):
    made = sample.fashion(tmp_path)
    read = sets.read(catalog.SETS["fashion-mnist"], split, tmp_path)
    assert same(read.images[:, 0], read.labels, made[split])
    assert read.classes[9] == "ankle boot"


def test_torchvision_reads_the_same_from_an_idx_file(tmp_path):
    from torchvision.datasets.mnist import read_image_file

    made = sample.idx(sample.chance().integers(0, 256, (5, 28, 28), dtype=np.uint8))
    (tmp_path / "plain").write_bytes(made)
    (tmp_path / "plain.gz").write_bytes(sample.gzip.compress(made))
    assert issubclass(MNIST, object)
    assert (read_image_file(tmp_path / "plain") == idx.read(tmp_path / "plain.gz", 3, "")).all()


@pytest.mark.parametrize("name", ["cifar10", "cifar100"])
@pytest.mark.parametrize("split", ["train", "test"])
def test_a_cifar_set_reads_the_same_from_the_archive_and_unpacked(tmp_path, name, split):
    inside = f"{sample.UNPACKED[name]}/"
    made = sample.cifar_tar(tmp_path / "a.tar.gz", name)
    sample.cifar_folder(tmp_path, name)
    for source, within in ((tmp_path / "a.tar.gz", inside), (tmp_path / inside, "")):
        images, labels, classes = cifar.read(source, name, split, inside=within, fix="")
        assert same(images, labels, made[split])
        assert len(classes) == {"cifar10": 10, "cifar100": 100}[name]


def test_the_pickles_of_the_tests_are_what_numpy_reads_as_arrays():
    rows = sample.chance().integers(0, 256, (3, 3072), dtype=np.uint8)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # numpy complains about the age of the format
        page = pickle.loads(sample.cifar_batch(rows, [1, 2, 3]), encoding="bytes")
    assert np.array_equal(page[b"data"], rows) and page[b"labels"] == [1, 2, 3]
    assert {b"batch_label", b"filenames"} < page.keys()


def test_the_file_names_are_those_torchvision_knows():
    assert cifar.files("cifar10", "train")[:-1] == tuple(name for name, _ in CIFAR10.train_list)
    assert cifar.files("cifar10", "test")[:-1] == tuple(name for name, _ in CIFAR10.test_list)
    assert catalog.SETS["cifar10"].unpacked == CIFAR10.base_folder
    assert catalog.SETS["cifar10"].archive == CIFAR10.filename


@pytest.mark.parametrize("protocol", [2, 4, 5])
def test_pickles_of_today_are_read_too_or_refused_by_name(tmp_path, protocol):
    rows = sample.chance().integers(0, 256, (3, 3072), dtype=np.uint8)
    page = pickle.dumps({b"data": rows, b"labels": [1, 2, 3]}, protocol)
    if protocol == 5:  # numpy writes these with a fifth word
        with pytest.raises(DataError, match="_frombuffer, which is not allowed"):
            cifar.page("p", page, "")
    else:
        images, _ = cifar.batch("p", cifar.page("p", page, ""), b"labels", 10, "")
        assert np.array_equal(images.reshape(3, -1).numpy(), rows)


def test_a_pickle_that_names_a_huge_number_takes_no_memory():
    tracemalloc.start()
    cifar.page("p", b"\x80\x02}r\xff\xff\xff\x7f.", "")  # C's unpickler would set aside 32 GB here
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2**20


def test_values_that_are_endless_to_print_make_a_short_error():
    tower = []
    for _ in range(60):
        tower = [tower, tower]
    page = {b"data": cifar.Array(), b"label_names": tower}
    with pytest.raises(DataError) as caught:
        cifar.class_names("p", page, b"label_names", "")
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize("reader", ["fashion-mnist", "cifar10", "cifar100", "tiny-imagenet"])
def test_an_empty_folder_is_a_missing_set(tmp_path, reader):
    with pytest.raises(DataError, match="not on this machine") as caught:
        sets.read(catalog.SETS[reader], "train", Path(tmp_path))
    assert caught.value.fix == catalog.SETS[reader].fix
