"""The idx format of MNIST and its successors: a magic number, the dimensions, then the bytes."""

import gzip
import math
import struct
import zlib

from labkit.data.catalog import damaged

MAX_BYTES = 2**31


def read(path, rank, fix):
    """A gzipped idx file of unsigned bytes as a uint8 tensor.

    rank     number of dimensions it must have: 3 for images (N, H, W), 1 for labels (N,)
    Raises   DataError: not gzip, wrong checksum, magic, or number of bytes
    Source   http://yann.lecun.com/exdb/mnist/
    """
    import torch

    try:
        with gzip.open(path) as file:
            shape = header(path, file, rank, fix)
            body = file.read(math.prod(shape) + 1)  # one more, so that the end and its checksum are reached
    except (OSError, EOFError, zlib.error) as error:
        raise damaged(path, "an intact gzip file", f"{type(error).__name__}: {error}", fix) from error
    if len(body) != math.prod(shape):
        found = "fewer" if len(body) < math.prod(shape) else "more"
        raise damaged(path, f"{math.prod(shape):,} bytes for {' x '.join(map(str, shape))}", f"{found} bytes", fix)
    return torch.frombuffer(bytearray(body), dtype=torch.uint8).reshape(shape)


def header(path, file, rank, fix):
    """The dimensions of an open idx file; its magic number says unsigned bytes and how many dimensions."""
    magic, wanted = file.read(4), bytes([0, 0, 8, rank])
    if magic != wanted:
        raise damaged(path, f"the magic number {wanted.hex()}", magic.hex() or "an empty file", fix)
    sizes = file.read(4 * rank)
    shape = struct.unpack(f">{rank}I", sizes) if len(sizes) == 4 * rank else ()
    if len(shape) != rank or 0 in shape or math.prod(shape) > MAX_BYTES:
        raise damaged(path, f"{rank} dimensions, none 0, at most {MAX_BYTES:,} bytes", f"{shape}", fix)
    return shape
