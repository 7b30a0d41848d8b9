"""Reads the published sets as tensors.

torchvision reads Fashion-MNIST and CIFAR, after their files have been unpacked into a temporary
folder. Tiny-ImageNet is read from its zip. The sha256 of all files has been compared before.
"""

import tempfile
import warnings
import zipfile
from contextlib import contextmanager
from pathlib import Path

from labkit.data._images import read_images
from labkit.errors import DataError

FASHION_CLASSES = (
    "T-shirt/top",
    "trouser",
    "pullover",
    "dress",
    "coat",
    "sandal",
    "shirt",
    "sneaker",
    "bag",
    "ankle boot",
)


def fashion_mnist(split, *files):
    """Return a split of Fashion-MNIST: uint8 (N, 1, 28, 28), int64 (N,), names of the classes.

    split  "train" or "test"
    files  paths of the set's four gzipped files
    """
    from torchvision.datasets import FashionMNIST

    with _unpacked(files, "FashionMNIST/raw") as folder:
        published = FashionMNIST(folder, train=split == "train")
    return published.data[:, None], published.targets, FASHION_CLASSES


def cifar10(split, archive):
    """Return a split of CIFAR-10: uint8 (N, 3, 32, 32), int64 (N,), names of the classes.

    Source  Krizhevsky 2009; https://www.cs.toronto.edu/~kriz/cifar.html
    """
    from torchvision.datasets import CIFAR10

    return _cifar(CIFAR10, "cifar10", split, archive)


def cifar100(split, archive):
    """Return a split of CIFAR-100: uint8 (N, 3, 32, 32), int64 (N,), names of the classes.

    There are 100 classes: those that the set calls fine.
    """
    from torchvision.datasets import CIFAR100

    return _cifar(CIFAR100, "cifar100", split, archive)


def _cifar(dataset_class, name, split, archive):
    """Return a split of CIFAR: uint8 (N, 3, 32, 32), int64 (N,), names of the classes.

    dataset_class  class of torchvision that reads the set, such as `CIFAR10`
    name           name of the set in labkit, for the error
    archive        path of the .tar.gz
    Raises         DataError where a file is missing from the archive, or has another md5 than
                   torchvision expects. torchvision compares the md5 before it opens a file
    """
    import torch

    with _unpacked([archive]) as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # NumPy's, about the age of these pickles
        try:
            published = dataset_class(folder, train=split == "train")
        except RuntimeError as error:
            raise DataError(
                f"{archive} is not the published archive.",
                expected=f"the files of {dataset_class.__name__}, each with the md5 that "
                "torchvision knows",
                found="files that are missing or have another md5",
                fix=f"labkit data get {name}",
            ) from error
    images = torch.from_numpy(published.data)  # (N, 32, 32, 3)
    images = images.permute(0, 3, 1, 2).contiguous()
    return images, torch.tensor(published.targets), tuple(published.classes)


@contextmanager
def _unpacked(files, subfolder="."):
    """Unpack files into a temporary folder below `subfolder`, and yield the path of the folder.

    files  paths of archives (.tar.gz) or of single files (.gz)
    """
    with tempfile.TemporaryDirectory(prefix="labkit-data-") as folder:
        for file in files:
            _unpack(file, Path(folder) / subfolder)
        yield folder


def _unpack(file, folder):
    """Unpack a file into a folder. Raises DataError where the disk has no room."""
    from torchvision.datasets.utils import extract_archive

    try:
        folder.mkdir(parents=True, exist_ok=True)
        with warnings.catch_warnings():
            # Python's, where an older torchvision names no filter for the members
            warnings.simplefilter("ignore")
            extract_archive(file, folder)
    except OSError as error:
        raise DataError(
            f"{file} cannot be unpacked.",
            expected=f"room for its content in {tempfile.gettempdir()}, as long as it is read",
            found=f"{type(error).__name__}: {error}",
            fix="free some disk space, or name a folder with more of it: TMPDIR=FOLDER",
        ) from error


def tiny_imagenet(split, archive):
    """Return a split of Tiny-ImageNet: uint8 (N, 3, 64, 64), int64 (N,), names of the classes.

    torchvision has no reader for this set. A class is identified by a code such as n01443537, its
    wnid. These files of the zip, below tiny-imagenet-200/, are read:

    wnids.txt                      a wnid per line; the position is the label
    words.txt                      wnid, tab, names of the class
    train/<wnid>/<wnid>_boxes.txt  names of the files in train/<wnid>/images/
    val/val_annotations.txt        name of a file in val/images/, tab, wnid

    The images in test/ have no published labels. Therefore the split "test" is val/.

    Source  Le and Yang 2015; https://cs231n.stanford.edu/
    """
    import torch

    with zipfile.ZipFile(archive) as zip_file:
        top = zipfile.Path(zip_file, "tiny-imagenet-200/")
        wnids = _lines(top / "wnids.txt")
        label_of = {wnid: label for label, wnid in enumerate(wnids)}
        if split == "train":
            wnid_of = _train_files(top, wnids)
        else:
            wnid_of = _validation_files(top)
        files = sorted(wnid_of)
        images = read_images(top, files)
        classes = _class_names(top, wnids)
    labels = torch.tensor([label_of[wnid_of[file]] for file in files])
    return images, labels, classes


def _train_files(top, wnids):
    """Return {path of an image file below `top`: wnid} of the train split."""
    wnid_of = {}
    for wnid in wnids:
        for line in _lines(top / "train" / wnid / f"{wnid}_boxes.txt"):
            name = line.split()[0]
            wnid_of[f"train/{wnid}/images/{name}"] = wnid
    return wnid_of


def _validation_files(top):
    """Return {path of an image file below `top`: wnid} of the validation split."""
    wnid_of = {}
    for line in _lines(top / "val/val_annotations.txt"):
        name, wnid = line.split("\t")[:2]
        wnid_of[f"val/images/{name}"] = wnid
    return wnid_of


def _class_names(top, wnids):
    """Return a name for each class, in the order of `wnids`.

    It is the first name in words.txt, or the wnid where words.txt has none.
    """
    names_of = {}
    for line in _lines(top / "words.txt"):
        wnid, _, names = line.partition("\t")
        names_of[wnid] = names
    return tuple(names_of.get(wnid, wnid).split(",")[0] for wnid in wnids)


def _lines(path):
    return path.read_text(encoding="utf-8").splitlines()
