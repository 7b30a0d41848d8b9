"""Store an ONNX file in few bits: zeros and repeated values of its weights take little space.

save("network.onnx.gz", "network.onnx")
load("network.onnx.gz")  # the model, with every weight as it was, bit for bit

In lesson 20 such files are handed in and graded. A file is a gzip stream of the ONNX model. A
tensor with few different numbers is replaced in the model by three arrays:

    codebook  the different numbers except 0, after one byte that says how many there are
    mask      one bit for each number of the tensor: 1 if the number is not 0
    indices   one byte for each number that is not 0: its index in the codebook

gzip's Huffman code then gives short codes to frequent bytes.

Source  Han et al. 2016, arXiv:1510.00149
"""

import math
import zlib
from pathlib import Path

import numpy as np
import onnx

from labkit.errors import LabError
from labkit.files import atomic

MARK = "coded"  # the doc_string of a tensor that is written in this way
MIN_NUMBERS = 256  # a smaller tensor is left as it is
MAX_CODEBOOK = 255  # numbers, so that their count and an index fit into a byte
GZIP = 31  # wbits of zlib for a gzip stream with its checksum
MAX_BYTES = 2**28  # of the model that comes out of a file


def save(path: str | Path, source: str | Path) -> None:
    """Write an ONNX file as one .onnx.gz, which `load` reads.

    path    the file to write
    source  an ONNX file with its weights inside
    """
    model = onnx.load(source)
    for tensor in model.graph.initializer:
        numbers = onnx.numpy_helper.to_array(tensor).flatten()
        # Bits are compared, because -0.0 and NaN have to come back, too.
        if numbers.dtype.kind in "fiu":
            bits = numbers.view(f"u{numbers.itemsize}")
        else:
            bits = numbers[:0]  # a tensor of other numbers is left as it is
        nonzero = bits != 0
        codebook, indices = np.unique(bits[nonzero], return_inverse=True)
        if len(bits) >= MIN_NUMBERS and len(codebook) <= MAX_CODEBOOK:
            tensor.CopyFrom(
                onnx.TensorProto(name=tensor.name, data_type=tensor.data_type, dims=tensor.dims)
            )
            arrays = [
                np.uint8(len(codebook)),
                codebook,
                np.packbits(nonzero),
                indices.astype(np.uint8),
            ]
            tensor.raw_data = b"".join(array.tobytes() for array in arrays)
            tensor.doc_string = MARK
    # Only Huffman codes: a search for repetitions would cost more bits than it saves, because the
    # order of the bytes is random.
    coder = zlib.compressobj(9, wbits=GZIP, memLevel=9, strategy=zlib.Z_HUFFMAN_ONLY)
    with atomic(path) as temporary:
        temporary.write_bytes(coder.compress(model.SerializeToString()) + coder.flush())


def load(path: str | Path) -> onnx.ModelProto:
    """Read a file that `save` wrote. Returns the onnx.ModelProto.

    Raises  LabError: the file is damaged or forged, or its model is larger than `MAX_BYTES`
    """
    try:
        stream = zlib.decompressobj(wbits=GZIP)
        unpacked = stream.decompress(Path(path).read_bytes(), MAX_BYTES)
        if not stream.eof:
            raise ValueError(f"a stream that ends early, or holds more than {MAX_BYTES:,} bytes")
        model = onnx.load_from_string(unpacked)
        for tensor in model.graph.initializer:
            if tensor.doc_string == MARK:
                tensor.raw_data = _numbers(tensor).tobytes()
                tensor.ClearField("doc_string")
    except Exception as error:  # damaged bytes may make zlib, protobuf and NumPy raise anything
        raise LabError(
            f"{path} is no whole file of a coded network.",
            expected="a file that `labkit.compress.save` wrote",
            found=f"{type(error).__name__}: {error}"[:300],
            fix="write it again",
        ) from error
    return model


def _numbers(tensor):
    """Decode one tensor of a coded file.

    Returns the bits of its numbers as unsigned integers (n,), of the size of the tensor's type.

    tensor  a TensorProto whose numbers `save` replaced by three arrays
    Raises  ValueError: the tensor is empty or too large
    """
    count = math.prod(tensor.dims)
    number_type = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type)
    if not 0 < count * number_type.itemsize <= MAX_BYTES:
        raise ValueError(f"a tensor of {count:,} numbers")

    # Codebook, mask and indices lie one behind the other.
    codebook_bytes = tensor.raw_data[0] * number_type.itemsize
    mask_start = 1 + codebook_bytes
    indices_start = mask_start + math.ceil(count / 8)
    codebook = np.frombuffer(tensor.raw_data[1:mask_start], f"u{number_type.itemsize}")
    mask = np.frombuffer(tensor.raw_data[mask_start:indices_start], np.uint8)
    indices = np.frombuffer(tensor.raw_data[indices_start:], np.uint8)
    bits = np.zeros(count, codebook.dtype)
    bits[np.unpackbits(mask, count=count).astype(bool)] = codebook[indices]
    return bits
