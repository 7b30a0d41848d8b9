"""CIFAR-10 and CIFAR-100 in their python format: pickles, read without trusting them.

A pickle is a program. This reader runs it on a machine that knows four harmless words (what numpy arrays
are written with), each replaced by a stand-in that only takes notes. Everything else is refused by name.
"""

import io
import pickle
from dataclasses import dataclass
from reprlib import repr as shortened  # a hostile value may be endless to print

from labkit.data.archives import contents
from labkit.data.catalog import damaged

PLAIN = {EOFError: "it ends too early", KeyError: "it is no pickle"}
ROW = 3 * 32 * 32  # bytes of one image: red, green and blue plane


@dataclass(frozen=True)
class Layout:
    """Names inside one of the two sets."""

    train: tuple[str, ...]
    test: tuple[str, ...]
    meta: str
    labels: bytes
    class_names: bytes


LAYOUTS = {
    "cifar10": Layout(
        tuple(f"data_batch_{i}" for i in range(1, 6)), ("test_batch",), "batches.meta", b"labels", b"label_names"
    ),
    "cifar100": Layout(("train",), ("test",), "meta", b"fine_labels", b"fine_label_names"),
}


def files(name, split):
    """The files of one split, the names of the classes last."""
    layout = LAYOUTS[name]
    return (*getattr(layout, split), layout.meta)


def read(source, name, split, *, inside="", fix):
    """One split as (images, labels, classes).

    source   the tar.gz, or the unpacked folder
    inside   the folder in it, with a slash, or ""
    returns  uint8 (N, 3, 32, 32), int64 (N,) and the class names
    Raises   DataError for anything that is not the published format
    Source   Krizhevsky 2009; https://www.cs.toronto.edu/~kriz/cifar.html
    """
    import torch

    layout, wanted = LAYOUTS[name], [inside + file for file in files(name, split)]
    found = dict(contents(source, wanted))
    if lacking := [file for file in wanted if file not in found]:
        raise damaged(f"{source}/{lacking[0]}", f"the files {', '.join(wanted)}", f"no {', '.join(lacking)}", fix)
    pages = [page(f"{source}/{file}", found.pop(file), fix) for file in wanted]
    classes = class_names(f"{source}/{wanted[-1]}", pages.pop(), layout.class_names, fix)
    parts = [
        batch(f"{source}/{file}", one, layout.labels, len(classes), fix)
        for file, one in zip(wanted, pages, strict=False)
    ]
    return torch.cat([images for images, _ in parts]), torch.cat([labels for _, labels in parts]), classes


def page(path, data, fix):
    """The dictionary in a pickle; refuses anything else, and runs nothing."""
    try:
        value = Unpickler(io.BytesIO(data), encoding="bytes").load()
    except Exception as error:  # a hostile file may make it raise anything
        wanted = "a pickle of numbers, bytes, lists and numpy arrays"
        raise damaged(path, wanted, PLAIN.get(type(error)) or f"{type(error).__name__}: {error}"[:300], fix) from error
    if not isinstance(value, dict):
        raise damaged(path, "a dictionary", type(value).__name__, fix)
    return value


def class_names(path, value, key, fix):
    """The class names of a meta page as a tuple of str."""
    names = value.get(key)
    good = isinstance(names, list) and names and all(isinstance(name, bytes) and name.isascii() for name in names)
    if not good or len(set(names)) != len(names):
        raise damaged(path, f"{key} with different names", kind(names) if names is None else shortened(names), fix)
    return tuple(name.decode() for name in names)


def batch(path, value, key, classes, fix):
    """Images and labels of one batch file, checked against each other."""
    import torch

    array, labels = value.get(b"data"), value.get(key)
    if not isinstance(array, Array) or not array.holds_rows():
        found = repr(array) if isinstance(array, Array) else kind(array)
        raise damaged(path, f"data: a uint8 array of n x {ROW}", found, fix)
    count = array.shape[0]
    good = isinstance(labels, list) and len(labels) == count
    if not good or not all(type(label) is int and 0 <= label < classes for label in labels):
        found = labels_found(labels, classes)
        raise damaged(path, f"{key}: {count} whole numbers from 0 to {classes - 1}", found, fix)
    images = torch.frombuffer(bytearray(array.content), dtype=torch.uint8).reshape(count, 3, 32, 32)
    return images, torch.tensor(labels, dtype=torch.int64)


def kind(value):
    """What a value is, in a word or two."""
    return "nothing under this name" if value is None else type(value).__name__


def labels_found(labels, classes):
    """What is wrong with a list of labels, in a few words."""
    if not isinstance(labels, list):
        return kind(labels)
    odd = [label for label in labels if type(label) is not int or not 0 <= label < classes]
    return f"{len(labels)} of them" + (f", among them {shortened(odd[0])}" if odd else "")


class Array:
    """Stands in for a numpy array: keeps shape, type and bytes, and computes nothing."""

    __slots__ = ("content", "dtype", "fortran", "shape")

    def __init__(self):
        self.shape, self.dtype, self.fortran, self.content = (), None, False, b""

    def __setstate__(self, state):
        _, self.shape, self.dtype, self.fortran, self.content = state

    def holds_rows(self):
        """Whether this is an (n, 3072) array of unsigned bytes, n at least 1."""
        shape = self.shape
        return (
            isinstance(shape, tuple)
            and len(shape) == 2
            and all(type(size) is int for size in shape)
            and (shape[0] > 0 and shape[1] == ROW)
            and isinstance(self.dtype, Type)
            and self.dtype.code in (b"u1", "u1")
            and not self.fortran
            and isinstance(self.content, bytes)
            and len(self.content) == shape[0] * ROW
        )

    def __repr__(self):
        size = f"{len(self.content):,} bytes" if isinstance(self.content, bytes) else type(self.content).__name__
        return f"array of shape {shortened(self.shape)}, type {shortened(getattr(self.dtype, 'code', None))}, {size}"


class Type:
    """Stands in for a numpy dtype: only its code, such as u1."""

    __slots__ = ("code",)

    def __init__(self, code):
        self.code = code

    def __setstate__(self, state):
        pass


class Word:
    """A callable name of a pickle. An instance without attributes, so that a pickle cannot alter it."""

    __slots__ = ()

    def __setstate__(self, state):
        raise pickle.UnpicklingError("an attempt to alter a name")


class Ndarray(Word):
    pass


class Reconstruct(Word):
    def __call__(self, *_):
        return Array()


class Dtype(Word):
    def __call__(self, code, *_):
        return Type(code)


class Encode(Word):
    """_codecs.encode: how Python 3 writes bytes into an old-style pickle."""

    def __call__(self, text, encoding):
        if encoding != "latin1":
            raise pickle.UnpicklingError(f"the encoding {encoding!r}")
        return text.encode("latin1")


WORDS = {
    ("numpy.core.multiarray", "_reconstruct"): Reconstruct(),
    ("numpy._core.multiarray", "_reconstruct"): Reconstruct(),
    ("numpy", "ndarray"): Ndarray(),
    ("numpy", "dtype"): Dtype(),
    ("_codecs", "encode"): Encode(),
}


class Unpickler(pickle._Unpickler):  # in Python: the one in C sets aside memory for any number a file names
    """Knows the four words of numpy arrays and nothing else."""

    def find_class(self, module, name):
        if (module, name) not in WORDS:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, which is not allowed")
        return WORDS[module, name]
