"""One file with a whole network, as small as its weights allow.

Each tensor is kept bit for bit, in the smallest of five forms: one repeated value; all values; all as halves, where
that loses nothing; the values other than 0 and the gaps between them; the same with a codebook, and an index per value.
Gaps and indices are Huffman-coded. The architecture is a name of `labkit.models`, which knows the shapes.

    magic (8 bytes) · sha256 of all that follows (32) · length of the header (2) · header, JSON · the tensors in order

The hash is checked before anything is read, so that no damaged bit passes. It keeps no forger out: whatever a file
claims is compared with the architecture before memory is taken for it. Nothing in a file is executed.
"""

import copy
import hashlib
import json
import struct
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import nn

from labkit import models
from labkit.compress import huffman
from labkit.compress.magnitude import prunable
from labkit.errors import LabError
from labkit.files import atomic

_MAGIC, _DIGEST = b"labpack1", 32
_LARGEST = 2**28  # bytes of a file
_MOST = 4096  # classes, or the length of a side: no network of the course has more
_GAPS = 8  # bits of a gap's symbol before Huffman coding; the last symbol says: so far, and further
CONSTANT, WHOLE, HALF, SPARSE, SHARED = range(5)


@dataclass(frozen=True)
class Packed:
    """What a file held.

    network  in eval mode
    name     of its architecture in `labkit.models`
    shape    of an input, without the batch
    dataset  name of the data set, or ""
    """

    network: nn.Module
    name: str
    shape: tuple
    dataset: str


@torch.no_grad()
def settled(model):
    """A copy for inference: batch norm as one scale and one shift per channel, all but the weights in half precision.

    This is the compressed network: the one to test, and the one that the file gives back exactly. Not to train on.
    """
    model = copy.deepcopy(model).eval()
    for layer in model.modules():
        if isinstance(layer, nn.modules.batchnorm._BatchNorm) and layer.affine and layer.track_running_stats:
            scale = layer.weight / (layer.running_var + layer.eps).sqrt()
            layer.bias -= layer.running_mean * scale
            layer.weight.copy_(scale * (1 + layer.eps) ** 0.5)
            layer.running_mean.zero_()
            layer.running_var.fill_(1)
            layer.num_batches_tracked.zero_()
    weights = prunable(model)
    for name, tensor in model.state_dict().items():
        if name in weights:
            tensor += 0.0  # -0.0, which masks leave behind, becomes 0.0
        elif tensor.is_floating_point() and tensor.half().isfinite().all():
            tensor.copy_(tensor.half())
    return model


def save(path, network, name, *, shape, dataset="", huffman=True):
    """Write a network to one file: {part: bits} of gaps, indices, tables, codebooks, values, "bound" and "total".

    path     the file to write
    network  any network; every tensor is kept bit for bit. It takes little where weights are 0 or shared
    name     of its architecture in `labkit.models`
    shape    of an input, without the batch
    huffman  False: codes of equal length, to see what Huffman's gain
    returns  "bound" is Shannon's: the entropy of each tensor's gaps and of its indices, which "gaps" + "indices" cannot
             fall below; "total" is the whole file
    """
    state, bits = network.state_dict(), Counter(gaps=0, indices=0, tables=0, codebooks=0, values=0, bound=0)
    facts = {"model": name, "classes": len(list(state.values())[-1]), "shape": list(shape), "dataset": dataset}
    header = json.dumps(facts, separators=(",", ":")).encode()
    body = [struct.pack("<H", len(header)), header]
    for tensor in state.values():
        data, parts = min(_forms(tensor.detach().cpu(), huffman), key=lambda form: len(form[0]))
        body.append(data)
        bits.update(parts)
    body = b"".join(body)
    with atomic(path) as temporary:
        temporary.write_bytes(_MAGIC + hashlib.sha256(body).digest() + body)
    return {**bits, "total": 8 * Path(path).stat().st_size}


def _forms(tensor, huffman):
    """Each (bytes, {part: bits}) that holds a tensor exactly."""
    array = tensor.contiguous().numpy()
    raw, flat = array.tobytes(), array.reshape(-1)
    yield bytes([WHOLE]) + raw, {"values": 8 * len(raw)}
    if raw == flat[:1].tobytes() * flat.size:
        yield bytes([CONSTANT]) + flat[:1].tobytes(), {"values": 8 * flat.itemsize}
    if array.dtype == np.float32:
        with np.errstate(over="ignore"):
            half = flat.astype(np.float16)
        if half.astype(np.float32).tobytes() == raw:
            yield bytes([HALF]) + half.tobytes(), {"values": 8 * half.nbytes}
        if array.ndim > 1:
            yield from _sparse_forms(flat, huffman)


def _sparse_forms(flat, huffman):
    """The forms for weights with zeros, or with few values. Compared are the bits: -0.0 is a value."""
    pattern = flat.view(np.uint32)
    places = np.flatnonzero(pattern)
    gaps, parts = _packed_gaps(places, huffman)
    start = struct.pack("<I", len(places)) + gaps
    values = flat[places]
    yield bytes([SPARSE]) + start + values.tobytes(), parts + Counter(values=8 * values.nbytes)
    codebook, index = np.unique(pattern[places], return_inverse=True)
    if 0 < len(codebook) <= 256:
        stream, more = _packed_symbols(index, len(codebook), "indices", huffman)
        data = bytes([SHARED]) + start + bytes([len(codebook) - 1]) + codebook.tobytes() + stream
        yield data, parts + more + Counter(codebooks=8 * codebook.nbytes)


def _packed_gaps(places, huffman):
    """The places of the kept values as the gaps between them."""
    gaps = np.diff(places, prepend=-1) - 1
    forms = []
    for width in (_GAPS,) if huffman else range(1, _GAPS + 1):
        skip = 2**width - 1  # this symbol: as many zeros, and the gap goes on
        ends = np.cumsum(gaps // skip + 1) - 1
        symbols = np.full(ends[-1] + 1 if len(ends) else 0, skip)
        symbols[ends] = gaps % skip
        stream, parts = _packed_symbols(symbols, skip + 1, "gaps", huffman)
        forms.append((struct.pack("<BI", width, len(symbols)) + stream, parts))
    return min(forms, key=lambda form: len(form[0]))


def _packed_symbols(symbols, count, part, huffman_coded):
    """A stream of symbols below `count` (at most 256): its table of code lengths, its length, its bits.

    Where one symbol only occurs, the table says it all.
    """
    counts = np.bincount(symbols, minlength=count)
    equal = np.full(count, max(1, (count - 1).bit_length()), dtype=np.uint8)
    lengths = np.trim_zeros(huffman.code_lengths(counts), "b") if huffman_coded else equal
    nibbles = np.append(lengths, [0] * (len(lengths) % 2)).astype(np.uint8)
    table = struct.pack("<H", len(lengths)) + (nibbles[::2] << 4 | nibbles[1::2]).tobytes()
    data = huffman.encode(symbols, lengths) if np.count_nonzero(lengths) > 1 else b""
    bound = len(symbols) * huffman.entropy(counts)
    return table + struct.pack("<I", len(data)) + data, Counter(
        {part: 8 * len(data), "tables": 8 * len(table), "bound": bound}
    )


def load(path, *, like=None):
    """Read such a file: a `Packed`.

    like    a network with the same layers, where `labkit.models` has no such network; it is not changed
    Raises  LabError: another kind of file, a damaged one, or one that wants an unknown or too large network
    """
    path = Path(path)
    try:
        reader = _Reader(_verified(path))
        facts = json.loads(reader.take(reader.number("<H")))
        name, classes, shape, dataset = (facts[key] for key in ("model", "classes", "shape", "dataset"))
        _require(all(type(each) is int and 0 < each <= _MOST for each in [classes, *shape]), "sizes up to 4096")
        _require(isinstance(dataset, str) and isinstance(name, str) and len(shape) in (1, 3), "names and a shape")
        network = copy.deepcopy(like) if like is not None else _skeleton(name, classes, tuple(shape))
        for tensor in network.state_dict().values():
            tensor.copy_(torch.from_numpy(_tensor(reader, tensor).reshape(tensor.shape).copy()))
        _require(not reader.left, "nothing behind the last tensor")
    except LabError as error:
        raise _refusal(path, error.expected or error.what, error.found) from None
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise _refusal(path, "a header and tensors that fit it", f"{type(error).__name__}: {error}") from None
    return Packed(network.eval(), name, tuple(shape), dataset)


def _verified(path):
    """What follows the hash, once it is found to be whole."""
    _require(path.is_file(), "a file", "no such file")
    _require(path.stat().st_size <= _LARGEST, f"at most {_LARGEST:,} bytes", f"{path.stat().st_size:,} bytes")
    data, start = path.read_bytes(), len(_MAGIC) + _DIGEST
    _require(data.startswith(_MAGIC), f"a beginning {_MAGIC!r}", f"{data[:8]!r}")
    found = hashlib.sha256(data[start:]).digest()
    _require(
        found == data[len(_MAGIC) : start], f"content with the sha256 {data[len(_MAGIC) : start].hex()}", found.hex()
    )
    return data[start:]


def _skeleton(name, classes, shape):
    """The network of a name, untrained."""
    network, known = models.build(name, classes=classes, like=shape if len(shape) == 3 else None)
    _require(known == shape, f"a shape {known} of {name}", f"{shape}")
    return network


def _tensor(reader, like):
    """The next tensor, flat."""
    kind, count, dtype = reader.number("<B"), like.numel(), np.dtype(str(like.dtype).removeprefix("torch."))
    if kind == CONSTANT:
        return np.repeat(reader.array(dtype, 1), count)
    if kind == WHOLE:
        return reader.array(dtype, count)
    if kind == HALF:
        return reader.array(np.float16, count).astype(np.float32)
    _require(kind in (SPARSE, SHARED) and dtype == np.float32, "one of five forms", f"form {kind}")
    flat, kept = np.zeros(count, dtype=np.float32), reader.number("<I")
    _require(kept <= count, f"at most {count} values", f"{kept}")
    places = _places(reader, kept, count)
    flat[places] = reader.array(np.float32, kept) if kind == SPARSE else _shared(reader, kept)
    return flat


def _places(reader, kept, count):
    """The inverse of `_packed_gaps`: `kept` increasing places below `count`."""
    width, symbols = reader.number("<B"), reader.number("<I")
    _require(1 <= width <= _GAPS and symbols <= count, "gaps within the tensor")
    gaps = _symbols(reader, symbols)
    last = gaps != 2**width - 1
    places = np.cumsum(gaps + last)[last] - 1
    _require(len(places) == kept and (not kept or places[-1] < count), f"{kept} places within the tensor")
    return places


def _shared(reader, kept):
    """The values of a codebook and an index each."""
    codebook = reader.array(np.float32, reader.number("<B") + 1)
    index = _symbols(reader, kept)
    _require(index.max(initial=0) < len(codebook), "indices within the codebook")
    return codebook[index]


def _symbols(reader, count):
    """The inverse of `_packed_symbols`."""
    size = reader.number("<H")
    _require(size <= 256, "at most 256 symbols", f"{size}")
    nibbles = reader.array(np.uint8, (size + 1) // 2)
    lengths = np.stack([nibbles >> 4, nibbles & 15], axis=1).reshape(-1)[:size]
    data, used = reader.take(reader.number("<I")), np.flatnonzero(lengths)
    if len(used) == 1 and not data:
        return np.full(count, used[0])
    _require(8 * len(data) <= count * huffman.LONGEST + 7, f"codes of {count} symbols")
    return huffman.decode(data, lengths, count)


class _Reader:
    """Takes bytes from the front, and never more than there are."""

    def __init__(self, data):
        self.left = memoryview(data)

    def take(self, count):
        _require(count <= len(self.left), f"{count} more bytes", f"{len(self.left)}")
        taken, self.left = self.left[:count], self.left[count:]
        return bytes(taken)

    def number(self, form):
        return struct.unpack(form, self.take(struct.calcsize(form)))[0]

    def array(self, dtype, count):
        return np.frombuffer(self.take(np.dtype(dtype).itemsize * count), dtype=dtype)


def _require(holds, expected, found=None):
    if not holds:
        raise LabError("It is not sound.", expected=expected, found=found)


def _refusal(path, expected, found):
    return LabError(
        f"{path} is no whole file of a compressed network.",
        expected=expected,
        found=found,
        fix="get or write it anew: `labkit compress CHECKPOINT OUT`",
    )
