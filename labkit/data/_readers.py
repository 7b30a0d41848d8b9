"""The formats of the published sets: idx, pickles in a tar.gz, JPEG files in a zip.

The sha256 of the files has been compared before.
"""

import gzip
import pickle
import struct
import tarfile
import warnings
import zipfile

from labkit.data._images import read_images

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


def fashion_mnist(split, images, labels):
    """A split's two gzipped idx files: uint8 (N, 1, 28, 28), int64 (N,), the names of the classes."""
    return _idx(images)[:, None], _idx(labels).long(), FASHION_CLASSES


def _idx(path):
    """A gzipped idx file of unsigned bytes: 0, 0, type, number of dimensions; the dimensions; the bytes.

    Source  http://yann.lecun.com/exdb/mnist/
    """
    import torch

    with gzip.open(path) as file:
        rank = file.read(4)[3]
        shape = struct.unpack(f">{rank}I", file.read(4 * rank))
        return torch.frombuffer(bytearray(file.read()), dtype=torch.uint8).reshape(shape)


def cifar10(split, archive):
    """One split of the tar.gz with python pickles: uint8 (N, 3, 32, 32), int64 (N,), the names of the classes.

    Source  Krizhevsky 2009; https://www.cs.toronto.edu/~kriz/cifar.html
    """
    batches = {"train": [f"data_batch_{i}" for i in range(1, 6)], "test": ["test_batch"]}[split]
    return _cifar(archive, batches, "batches.meta", b"labels", b"label_names")


def cifar100(split, archive):
    """As `cifar10`, with the 100 fine classes."""
    return _cifar(archive, [split], "meta", b"fine_labels", b"fine_label_names")


def _cifar(archive, batches, meta, labels, names):
    import torch

    pages = _pickles(archive, {*batches, meta})
    images = torch.cat([torch.from_numpy(pages[batch][b"data"]) for batch in batches])
    wanted = [label for batch in batches for label in pages[batch][labels]]
    return images.reshape(-1, 3, 32, 32), torch.tensor(wanted), tuple(name.decode() for name in pages[meta][names])


def _pickles(archive, wanted):
    """{file name: dictionary} of the wanted files of a tar.gz, in one pass."""
    pages = {}
    with tarfile.open(archive, "r|gz") as opened, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # numpy's, about the age of these pickles
        for member in opened:
            name = member.name.rpartition("/")[2]
            if name in wanted:
                pages[name] = _Arrays(opened.extractfile(member), encoding="bytes").load()
    return pages


class _Arrays(pickle.Unpickler):
    """Knows the three words numpy arrays are written with. A pickle is a program: this one may call nothing else."""

    def find_class(self, module, name):
        if (module, name) not in _WORDS:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, which is not allowed")
        return super().find_class(module, name)


_WORDS = {("numpy.core.multiarray", "_reconstruct"), ("numpy", "ndarray"), ("numpy", "dtype")}


def tiny_imagenet(split, archive):
    """One split of the zip of JPEG files: uint8 (N, 3, 64, 64), int64 (N,), the names of the classes.

    wnids.txt                          one class number a line, n01443537; its place is the label
    words.txt                          number, tab, names
    train/<wnid>/<wnid>_boxes.txt      names the files in train/<wnid>/images/
    val/val_annotations.txt            file in val/images/, tab, class number

    The images in test/ have no published labels: the split "test" is val/.

    Source  Le and Yang 2015; https://cs231n.stanford.edu/
    """
    with zipfile.ZipFile(archive) as opened:
        return _tiny_imagenet(split, zipfile.Path(opened, "tiny-imagenet-200/"))


def _tiny_imagenet(split, top):
    import torch

    wnids = _lines(top / "wnids.txt")
    words = dict(line.partition("\t")[::2] for line in _lines(top / "words.txt"))
    label = {wnid: place for place, wnid in enumerate(wnids)}
    if split == "train":
        boxes = [(wnid, line) for wnid in wnids for line in _lines(top / "train" / wnid / f"{wnid}_boxes.txt")]
        labelled = {f"train/{wnid}/images/{line.split()[0]}": label[wnid] for wnid, line in boxes}
    else:
        notes = [line.split("\t") for line in _lines(top / "val/val_annotations.txt")]
        labelled = {f"val/images/{note[0]}": label[note[1]] for note in notes}
    order = sorted(labelled)
    images = read_images(top, order)
    classes = tuple(words.get(wnid, wnid).split(",")[0] for wnid in wnids)
    return images, torch.tensor([labelled[name] for name in order]), classes


def _lines(path):
    return path.read_text(encoding="utf-8").splitlines()
