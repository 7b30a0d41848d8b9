"""Each reader against what was written, in the true formats."""

import pickle
import warnings

import numpy as np
import pytest
import sample_data as sample
import torch
from torchvision.datasets import CIFAR10, CIFAR100

from labkit import data
from labkit.data import _readers
from labkit.data._published import SETS


@pytest.mark.parametrize("name", ["fashion-mnist", "cifar10", "cifar100"])
@pytest.mark.parametrize("split", ["train", "test"])
def test_a_set_comes_back_pixel_for_pixel(publish, name, split):
    images, labels = publish(name)[split]
    for _ in range(2):  # decoded, then as it was kept
        read = data.load(name, split)
        assert np.array_equal(read.images.numpy(), images) and np.array_equal(read.labels.numpy(), labels)
        assert read.images.dtype == torch.uint8 and read.labels.dtype == torch.int64
        assert len(read.classes) == {"fashion-mnist": 10, "cifar10": 10, "cifar100": 100}[name]
    assert read.classes[9] == {"fashion-mnist": "ankle boot"}.get(name, "class 9")


def test_torchvision_reads_the_same_from_an_idx_file(tmp_path):
    from torchvision.datasets.mnist import read_image_file

    made = sample.idx(sample.chance().integers(0, 256, (5, 28, 28), dtype=np.uint8))
    (tmp_path / "plain").write_bytes(made)
    (tmp_path / "plain.gz").write_bytes(sample.gzip.compress(made))
    assert (read_image_file(tmp_path / "plain") == _readers._idx(tmp_path / "plain.gz")).all()


@pytest.mark.parametrize(("name", "theirs"), [("cifar10", CIFAR10), ("cifar100", CIFAR100)])
def test_torchvision_reads_the_same_from_the_unpacked_archive(publish, sets_here, monkeypatch, name, theirs):
    publish(name)
    sample.unpack_tar(sets_here / name / SETS[name].archive, sets_here)
    monkeypatch.setattr(theirs, "_check_integrity", lambda _: True)
    monkeypatch.setattr("torchvision.datasets.cifar.check_integrity", lambda *_: True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # numpy complains about the age of the format
        other = theirs(sets_here, train=False)
    read = data.load(name, "test")
    assert torch.equal(read.images.permute(0, 2, 3, 1), torch.from_numpy(other.data))
    assert read.labels.tolist() == other.targets and list(read.classes) == other.classes
    assert SETS[name].archive == theirs.filename


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
def test_a_pickle_that_calls_anything_but_arrays_is_refused_even_with_the_right_hash(
    sets_here, tmp_path, monkeypatch, program
):
    sample.write_tar(sets_here / "cifar10/cifar-10-python.tar.gz", {"cifar-10-batches-py/test_batch": program})
    monkeypatch.setitem(SETS, "cifar10", sample.pinned("cifar10", sets_here / "cifar10"))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(pickle.UnpicklingError, match=r"not allowed|persistent"):
        data.load("cifar10", "test")
    assert not (tmp_path / "victim").exists()
