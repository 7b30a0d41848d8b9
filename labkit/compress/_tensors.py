"""How one tensor stands in the file of a compressed network: bytes of it, and back.

Five forms: one repeated value; all values; all as halves; the values other than 0 and the gaps between them; the same
with a codebook, and an index per value. Each keeps every bit. What is read may come from a forger: each number is
compared with what the tensor can hold before memory is taken for it.
"""

import struct
from collections import Counter

import numpy as np

from labkit.compress import huffman
from labkit.errors import LabError

_GAPS = 8  # bits of a gap's symbol before Huffman coding; the last symbol says: so far, and further
_CONSTANT, _WHOLE, _HALF, _SPARSE, _SHARED = range(5)


def tensor_forms(tensor, coded):
    """Each (bytes, {part: bits}) that holds a tensor exactly."""
    array = tensor.contiguous().numpy()
    raw, flat = array.tobytes(), array.reshape(-1)
    yield bytes([_WHOLE]) + raw, {"values": 8 * len(raw)}
    if raw == flat[:1].tobytes() * flat.size:
        yield bytes([_CONSTANT]) + flat[:1].tobytes(), {"values": 8 * flat.itemsize}
    if array.dtype == np.float32:
        with np.errstate(over="ignore"):
            half = flat.astype(np.float16)
        if half.astype(np.float32).tobytes() == raw:
            yield bytes([_HALF]) + half.tobytes(), {"values": 8 * half.nbytes}
        if array.ndim > 1:
            yield from _sparse_forms(flat, coded)


def _sparse_forms(flat, coded):
    """The forms for weights with zeros, or with few values. Compared are the bits: -0.0 is a value."""
    pattern = flat.view(np.uint32)
    places = np.flatnonzero(pattern)
    gaps, parts = _packed_gaps(places, coded)
    start = struct.pack("<I", len(places)) + gaps
    values = flat[places]
    yield bytes([_SPARSE]) + start + values.tobytes(), parts + Counter(values=8 * values.nbytes)
    codebook, index = np.unique(pattern[places], return_inverse=True)
    if 0 < len(codebook) <= 256:
        stream, more = _packed_symbols(index, len(codebook), "indices", coded)
        data = bytes([_SHARED]) + start + bytes([len(codebook) - 1]) + codebook.tobytes() + stream
        yield data, parts + more + Counter(codebooks=8 * codebook.nbytes)


def _packed_gaps(places, coded):
    """The places of the kept values as the gaps between them."""
    gaps = np.diff(places, prepend=-1) - 1
    forms = []
    for width in (_GAPS,) if coded else range(1, _GAPS + 1):
        skip = 2**width - 1  # this symbol: as many zeros, and the gap goes on
        ends = np.cumsum(gaps // skip + 1) - 1
        symbols = np.full(ends[-1] + 1 if len(ends) else 0, skip)
        symbols[ends] = gaps % skip
        stream, parts = _packed_symbols(symbols, skip + 1, "gaps", coded)
        forms.append((struct.pack("<BI", width, len(symbols)) + stream, parts))
    return min(forms, key=lambda form: len(form[0]))


def _packed_symbols(symbols, count, part, coded):
    """A stream of symbols below `count` (at most 256): its table of code lengths, its length, its bits.

    Where one symbol only occurs, the table says it all.
    """
    counts = np.bincount(symbols, minlength=count)
    equal = np.full(count, max(1, (count - 1).bit_length()), dtype=np.uint8)
    lengths = np.trim_zeros(huffman.code_lengths(counts), "b") if coded else equal
    nibbles = np.append(lengths, [0] * (len(lengths) % 2)).astype(np.uint8)
    table = struct.pack("<H", len(lengths)) + (nibbles[::2] << 4 | nibbles[1::2]).tobytes()
    data = huffman.encode(symbols, lengths) if np.count_nonzero(lengths) > 1 else b""
    bound = len(symbols) * huffman.entropy(counts)
    return table + struct.pack("<I", len(data)) + data, Counter(
        {part: 8 * len(data), "tables": 8 * len(table), "bound": bound}
    )


def read_tensor(reader, like):
    """The next tensor, flat."""
    kind, count, dtype = reader.number("<B"), like.numel(), np.dtype(str(like.dtype).removeprefix("torch."))
    if kind == _CONSTANT:
        return np.repeat(reader.array(dtype, 1), count)
    if kind == _WHOLE:
        return reader.array(dtype, count)
    if kind == _HALF:
        return reader.array(np.float16, count).astype(np.float32)
    require(kind in (_SPARSE, _SHARED) and dtype == np.float32, "one of five forms", f"form {kind}")
    flat, kept = np.zeros(count, dtype=np.float32), reader.number("<I")
    require(kept <= count, f"at most {count} values", f"{kept}")
    places = _places(reader, kept, count)
    flat[places] = reader.array(np.float32, kept) if kind == _SPARSE else _shared(reader, kept)
    return flat


def _places(reader, kept, count):
    """The inverse of `_packed_gaps`: `kept` increasing places below `count`."""
    width, symbols = reader.number("<B"), reader.number("<I")
    require(1 <= width <= _GAPS and symbols <= count, "gaps within the tensor")
    gaps = _symbols(reader, symbols)
    last = gaps != 2**width - 1
    places = np.cumsum(gaps + last)[last] - 1
    require(len(places) == kept and (not kept or places[-1] < count), f"{kept} places within the tensor")
    return places


def _shared(reader, kept):
    """The values of a codebook and an index each."""
    codebook = reader.array(np.float32, reader.number("<B") + 1)
    index = _symbols(reader, kept)
    require(index.max(initial=0) < len(codebook), "indices within the codebook")
    return codebook[index]


def _symbols(reader, count):
    """The inverse of `_packed_symbols`."""
    size = reader.number("<H")
    require(size <= 256, "at most 256 symbols", f"{size}")
    nibbles = reader.array(np.uint8, (size + 1) // 2)
    lengths = np.stack([nibbles >> 4, nibbles & 15], axis=1).reshape(-1)[:size]
    data, used = reader.take(reader.number("<I")), np.flatnonzero(lengths)
    if len(used) == 1 and not data:
        return np.full(count, used[0])
    require(8 * len(data) <= count * huffman.LONGEST + 7, f"codes of {count} symbols")
    return huffman.decode(data, lengths, count)


class Reader:
    """Takes bytes from the front, and never more than there are."""

    def __init__(self, data):
        self.left = memoryview(data)

    def take(self, count):
        require(count <= len(self.left), f"{count} more bytes", f"{len(self.left)}")
        taken, self.left = self.left[:count], self.left[count:]
        return bytes(taken)

    def number(self, form):
        return struct.unpack(form, self.take(struct.calcsize(form)))[0]

    def array(self, dtype, count):
        return np.frombuffer(self.take(np.dtype(dtype).itemsize * count), dtype=dtype)


def require(holds, expected, found=None):
    if not holds:
        raise LabError("It is not sound.", expected=expected, found=found)
