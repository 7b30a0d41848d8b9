"""What tensors claim to be, held against the bytes that are there."""

import math
from pathlib import Path, PurePosixPath

from onnx import TensorProto

from labkit.errors import LabError

LARGEST = 2**31  # bytes of one tensor; no network of the course comes near
NIBBLES = {TensorProto.INT4, TensorProto.UINT4, TensorProto.FLOAT4E2M1}
BYTES = {
    **dict.fromkeys([TensorProto.DOUBLE, TensorProto.INT64, TensorProto.UINT64, TensorProto.COMPLEX64], 8),
    **dict.fromkeys([TensorProto.FLOAT, TensorProto.INT32, TensorProto.UINT32], 4),
    **dict.fromkeys([TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.INT16, TensorProto.UINT16], 2),
    **dict.fromkeys([TensorProto.INT8, TensorProto.UINT8, TensorProto.BOOL], 1),
    **dict.fromkeys([TensorProto.FLOAT8E4M3FN, TensorProto.FLOAT8E4M3FNUZ], 1),
    **dict.fromkeys([TensorProto.FLOAT8E5M2, TensorProto.FLOAT8E5M2FNUZ], 1),
    **dict.fromkeys(NIBBLES, 0.5),
    TensorProto.COMPLEX128: 16,
}
FIELDS = ("float_data", "int32_data", "int64_data", "double_data", "uint64_data")
KEYS = {"location", "offset", "length", "checksum", "basepath"}


def check_tensor(tensor, folder):
    """Refuse a tensor whose shape claims other bytes than it has, or whose bytes lie outside `folder`."""
    claimed = claimed_bytes(tensor.name, tensor.dims, tensor.data_type)
    if tensor.data_location == TensorProto.EXTERNAL:
        held = external_bytes(tensor, folder)
    elif tensor.data_type == TensorProto.STRING:
        claimed, held = math.prod(tensor.dims), len(tensor.string_data)
    elif tensor.HasField("raw_data"):
        held = len(tensor.raw_data)
    else:
        claimed, held = typed_values(tensor), sum(len(getattr(tensor, field)) for field in FIELDS)
    if held != claimed:
        raise LabError(
            f"The tensor {tensor.name!r} is not the size it claims.", expected=f"{claimed:,} values or bytes of data",
            found=f"{held:,}",
        )  # fmt: skip


def check_reuse(tensors, folder):
    """Refuse tensors that together claim their external files over and over: each claim is a copy in memory."""
    external = [tensor for tensor in tensors if tensor.data_location == TensorProto.EXTERNAL]
    claimed = sum(claimed_bytes(tensor.name, tensor.dims, tensor.data_type) for tensor in external)
    places = {entry.value for tensor in external for entry in tensor.external_data if entry.key == "location"}
    held = sum((Path(folder) / place).stat().st_size for place in places)
    if claimed > 2 * held:
        raise LabError(
            "Its tensors claim the same external data over and over.",
            expected=f"about the {held:,} bytes that are there",
            found=f"{claimed:,} bytes claimed",
        )


def claimed_bytes(name, dims, data_type):
    """Bytes that a shape and a type ask for."""
    if any(side < 0 for side in dims):
        raise LabError(f"The tensor {name!r} has a negative side.", expected="0 or more", found=str(list(dims)))
    if data_type not in BYTES and data_type != TensorProto.STRING:
        raise LabError(f"The tensor {name!r} has no known type.", expected="a type of ONNX", found=str(data_type))
    size = math.ceil(math.prod(dims) * BYTES.get(data_type, 1))
    if size > LARGEST:
        raise LabError(
            f"The tensor {name!r} claims more memory than any network here needs.", expected="at most 2 GiB",
            found=f"{size / 2**30:,.1f} GiB",
        )  # fmt: skip
    return size


def typed_values(tensor):
    """How many entries the typed fields must hold: two for a complex number, one for two nibbles."""
    count = math.prod(tensor.dims)
    if tensor.data_type in NIBBLES:
        return math.ceil(count / 2)
    return 2 * count if tensor.data_type in (TensorProto.COMPLEX64, TensorProto.COMPLEX128) else count


def external_bytes(tensor, folder):
    """Bytes of a tensor's external data, whose file must be a plain one inside `folder`, reached without links."""
    entries = {entry.key: entry.value for entry in tensor.external_data}
    if set(entries) - KEYS or len(entries) != len(tensor.external_data):
        raise LabError(
            f"The external data of {tensor.name!r} has unknown or repeated keys.", found=str(sorted(entries))[:200]
        )
    size = inside(entries.get("location", ""), folder, tensor.name).stat().st_size
    try:
        offset = int(entries.get("offset", 0))
        length = int(entries.get("length", size - offset))
    except ValueError:
        offset = length = -1
    if offset < 0 or length < 0 or offset + length > size:
        raise LabError(
            f"The external data of {tensor.name!r} lies outside its file.",
            expected=f"a place within {size:,} bytes",
            found=f"offset {entries.get('offset')!r}, length {entries.get('length')!r}",
        )
    return length


def inside(location, folder, name):
    """The file of a tensor, or a LabError when it is not a plain file below `folder`."""
    parts, path = PurePosixPath(location).parts, Path(folder) / location
    climbs = not parts or PurePosixPath(location).is_absolute() or ".." in parts or "\\" in location or ":" in location
    if climbs or "\0" in location:
        raise LabError(
            f"The external data of {name!r} leaves the model's folder.",
            expected="a file name, relative to the model",
            found=repr(location[:200]),
        )
    links = [step for step in (path, *path.parents[: len(parts) - 1]) if step.is_symlink()]
    if links or not path.is_file() or path.stat().st_nlink > 1:
        raise LabError(
            f"The external data of {name!r} is not a plain file of its own.",
            expected=f"a file {location!r} beside the model, not a link",
            found="a link" if path.exists() else "nothing there",
        )
    return path
