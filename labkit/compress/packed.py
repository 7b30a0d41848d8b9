"""One file with a whole network, as small as its weights allow.

The file is a zip. Its members are stored as they are:

    network.json  the name of the architecture in `labkit.models`, its classes, the shape of its inputs, its data set
    gaps          the number of zeros before each weight that is not 0: a byte
    indices       for each of these weights, its place in the codebook of its layer: half a byte, or one where needed
    codebooks     the shared values of each layer
    values        numbers without a codebook: weights of layers with more than 256 values, batch norm, biases

Each layer adds a stream of zlib to each member; gaps, indices and codebooks are Huffman-coded and nothing else
(`Z_HUFFMAN_ONLY`). Every tensor comes back bit for bit. The checksums of the zip show damage. A forged file cannot fill
the memory: the architecture says how many numbers there are, and no stream is unpacked beyond that. Nothing in a file
is executed.
"""

import copy
import json
import zipfile
import zlib
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import nn

from labkit import models
from labkit.compress.magnitude import prunable
from labkit.errors import LabError
from labkit.files import atomic

_STREAMS = ("gaps", "indices", "codebooks", "values")
_FURTHER = 255  # the gap goes on in the next byte
_LARGEST_CODEBOOK = 256  # values, so that an index fits into a byte
_LARGEST_FILE = 2**28  # bytes
_LARGEST_SIDE = 4096  # pixels, channels or classes: no network of the course has more


class Packed(NamedTuple):
    """What a file holds, in the order of `labkit.train.restored`.

    network  in eval mode
    name     of its architecture
    dataset  name of the images it was trained on, or ""
    shape    of an input, without the batch
    """

    network: nn.Module
    name: str
    dataset: str
    shape: tuple


@torch.no_grad()
def folded(model: nn.Module) -> nn.Module:
    """A copy for inference: batch norm as one scale and one shift per channel, all but the weights in half precision.

    This is the compressed network: the one to test, and the one that the file gives back exactly. Do not train it.
    """
    model = copy.deepcopy(model).eval()
    for layer in model.modules():
        if isinstance(layer, nn.modules.batchnorm._BatchNorm) and layer.affine and layer.track_running_stats:
            _fold(layer)
    weights = prunable(model)
    for name, tensor in model.state_dict().items():
        if name in weights:
            tensor += 0.0  # -0.0, which masks leave behind, becomes 0.0
        elif tensor.is_floating_point() and tensor.half().isfinite().all():
            tensor.copy_(tensor.half())
    return model


def _fold(norm):
    """Move the statistics of a batch norm into its scale and shift: mean 0 and variance 1 are left."""
    scale = norm.weight / (norm.running_var + norm.eps).sqrt()
    norm.bias -= norm.running_mean * scale
    norm.weight.copy_(scale * (1 + norm.eps) ** 0.5)
    norm.running_mean.zero_()
    norm.running_var.fill_(1)
    norm.num_batches_tracked.zero_()


def save(path, network, name, *, shape, dataset="", huffman=True):
    """Write a network to one file, and return what takes the room: {part: bits}.

    network  any network of float32. The file is small where weights are 0 or shared
    name     of its architecture in `labkit.models`
    shape    of an input, without the batch
    dataset  name of the images it was trained on
    huffman  False: gaps, indices and codebooks are not coded, to see what Huffman coding gains
    returns  bits of "gaps", "indices", "codebooks" and "values"; "bound" is Shannon's bound, the entropy of gaps and
             indices layer by layer, which no code of single symbols falls below; "total" is the whole file
    """
    weights, others = _weights_and_others(network)
    streams, bound = dict.fromkeys(_STREAMS, b""), 0.0
    for weight in weights:
        numbers = _bits([weight])
        places = np.flatnonzero(numbers)
        gaps = _gaps(places)
        streams["gaps"] += _coded(gaps, huffman)
        book, index = np.unique(numbers[places], return_inverse=True)
        if 0 < len(book) <= _LARGEST_CODEBOOK:
            streams["indices"] += _coded(_paired(index.astype(np.uint8), len(book)), huffman)
        else:
            streams["values"] += _planes(numbers[places])
            book, index = book[:0], index[:0]
        streams["codebooks"] += _coded(book, huffman)
        bound += _entropy(gaps) + _entropy(index)
    streams["values"] += _planes(_bits(others))
    about = {"model": name, "classes": len((others or weights)[-1]), "shape": list(shape), "dataset": dataset}
    about["numbers"] = sum(map(torch.numel, weights + others))
    with atomic(path) as temporary, zipfile.ZipFile(temporary, "w") as archive:
        for part, data in {"network.json": json.dumps(about), **streams}.items():
            archive.writestr(part, data)
    bits = {part: 8 * len(stream) for part, stream in streams.items()}
    return bits | {"bound": bound, "total": 8 * Path(path).stat().st_size}


def _weights_and_others(network):
    """The tensors of a network in two lists: the weights of its layers; batch norm and biases."""
    state = network.state_dict().values()
    return [tensor for tensor in state if tensor.ndim > 1], [tensor for tensor in state if tensor.ndim < 2]


def _bits(tensors):
    """All their numbers as the bits of float32. Compared are bits, because -0.0 is a value and not 0."""
    flat = [tensor.float().cpu().flatten() for tensor in tensors]
    return torch.cat([torch.zeros(0), *flat]).numpy().view(np.uint32)


def _gaps(places):
    """The number of zeros before each place as bytes; a long gap takes several."""
    gaps = np.diff(places, prepend=-1) - 1
    ends = np.cumsum(gaps // _FURTHER + 1) - 1
    symbols = np.full(ends.max(initial=-1) + 1, _FURTHER, np.uint8)
    symbols[ends] = gaps % _FURTHER
    return symbols


def _places(symbols):
    """The inverse of `_gaps`."""
    ends = symbols != _FURTHER
    return np.cumsum(symbols + ends, dtype=np.int64)[ends] - 1


def _paired(index, book_size):
    """Two indices in a byte, where they are below 16."""
    if book_size > 16:
        return index
    index = np.pad(index, (0, len(index) % 2))
    return index[::2] << 4 | index[1::2]


def _single(data, book_size):
    """The inverse of `_paired`, but for one index too many where their number is odd."""
    return data if book_size > 16 else np.stack([data >> 4, data & 15], axis=1).reshape(-1)


def _coded(array, huffman):
    """The bytes of an array, Huffman-coded or as they are, as a stream of zlib."""
    coder = zlib.compressobj(9 if huffman else 0, wbits=-15, memLevel=9, strategy=zlib.Z_HUFFMAN_ONLY)
    return coder.compress(array.tobytes()) + coder.flush()


def _planes(numbers):
    """A stream of the first bytes of all numbers, then of their second bytes, and so on, each with its own code."""
    coder = zlib.compressobj(9, wbits=-15)
    planes = numbers.view(np.uint8).reshape(-1, 4).T
    return b"".join(coder.compress(plane.tobytes()) + coder.flush(zlib.Z_BLOCK) for plane in planes) + coder.flush()


def _entropy(symbols):
    """Shannon's bound in bits."""
    counts = np.bincount(symbols)
    counts = counts[counts > 0]
    return float((counts * np.log2(len(symbols) / counts)).sum())


def load(path):
    """Read such a file: a `Packed`.

    Raises  LabError: another kind of file, a damaged one, or one that wants an unknown or too large network
    """
    try:
        return _network(_members(Path(path)))
    except Exception as error:  # a damaged or forged file may make zip, JSON and zlib raise anything
        raise LabError(
            f"{path} is no whole file of a compressed network.",
            expected="a file of `labkit compress`, as this edition of the course writes it",
            found=f"{type(error).__name__}: {error}",
            fix="get it again, or write a new one: `labkit compress CHECKPOINT OUT`",
        ) from error


def _members(path):
    """{name: bytes} of the members. None is larger than the file, because none is compressed."""
    if path.stat().st_size > _LARGEST_FILE:
        raise ValueError(f"{path.stat().st_size:,} bytes; {_LARGEST_FILE:,} are the most")
    with zipfile.ZipFile(path) as archive:
        members = [archive.getinfo(name) for name in ("network.json", *_STREAMS)]
        if any(each.compress_type != zipfile.ZIP_STORED for each in members):
            raise ValueError("a member of the zip is compressed")
        return {each.filename: archive.read(each) for each in members}


@torch.no_grad()
def _network(members):
    """The network that the members of a file describe: a `Packed`."""
    about = json.loads(members["network.json"])
    name, classes, shape = about["model"], about["classes"], tuple(about["shape"])
    if not all(0 < size <= _LARGEST_SIDE for size in (classes, *shape)):
        raise ValueError(f"{classes} classes, inputs of {shape}; sizes go from 1 to {_LARGEST_SIDE}")
    network, shape = models.build(name, classes=classes, like=shape)
    weights, others = _weights_and_others(network)
    if about["numbers"] != sum(map(torch.numel, weights + others)):
        raise ValueError(f"{about['numbers']} numbers, which is not what {name} has")
    sizes = [other.numel() for other in others]
    numbers = [_read_weight(members, weight.numel()) for weight in weights]
    numbers += _read_values(members, sum(sizes)).split(sizes)
    for tensor, values in zip(weights + others, numbers, strict=True):
        tensor.copy_(values.view(tensor.shape))
    return Packed(network.eval(), name, about["dataset"], shape)


def _read_weight(members, size):
    """The next weight from the streams, flat."""
    places = _places(_unpacked(members, "gaps", size))
    book = _unpacked(members, "codebooks", 4 * _LARGEST_CODEBOOK).view(np.float32)
    weight = torch.zeros(size)
    if len(book):
        index = _single(_unpacked(members, "indices", len(places)), len(book))
        weight[places] = torch.from_numpy(book[index[: len(places)]])
    else:
        weight[places] = _read_values(members, len(places))
    return weight


def _read_values(members, count):
    """So many numbers from the stream of values: the inverse of `_planes`."""
    planes = _unpacked(members, "values", 4 * count).reshape(4, count)
    return torch.from_numpy(planes.T.copy().view(np.float32)[:, 0])


def _unpacked(members, part, most):
    """The next stream of a member as bytes, at most so many: nothing more is unpacked, whatever the stream holds."""
    coder = zlib.decompressobj(wbits=-15)
    data = coder.decompress(members[part], most + 1)
    if len(data) > most or not coder.eof:
        raise ValueError(f"{part} that end early, or are more than {most} bytes")
    members[part] = coder.unused_data
    return np.frombuffer(data, np.uint8)
