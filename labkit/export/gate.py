"""Guard against harmful ONNX files: a separate process opens, checks and runs each file first.

A file may fill the memory, run without end or crash a library. Then only the separate process is
harmed. The checks are in `inspection`. They do not tell whether the network is a good one: use
`parity` and a test set for that.

Cost    about half a second per file, once; nothing for a file that this process wrote itself
"""

import math
from collections import Counter
from collections.abc import Iterable
from functools import partial
from pathlib import Path

import onnx
from google.protobuf.message import DecodeError

from labkit.device.child import ChildEnded, run_in_child
from labkit.errors import LabError
from labkit.files import sha256

LARGEST = 2**31  # bytes of the file itself; its external data may be more
LIMIT_S = 40  # seconds of computing for one file; the files of the lessons take about one
ADVICE = "do not use it; export the model anew, or ask where the file comes from"
INTEGER_PRODUCTS = ("MatMulInteger", "ConvInteger")
FLOATS = {"FLOAT": "fp32", "FLOAT16": "fp16", "BFLOAT16": "bf16"}

_made_here: set[str] = set()  # digests of the files that this process wrote
# (digest, path) of the files that were inspected: external data lies beside a file
_inspected: set[tuple[str, str]] = set()


def made_here(path: Path) -> Path:
    """Note that this process wrote a file, so that `checked` trusts the file. Returns the path."""
    _made_here.add(sha256(path))
    return path


def checked(path: str | Path | onnx.ModelProto) -> onnx.ModelProto:
    """Load an ONNX file, with its external data, after every check. Returns an `onnx.ModelProto`.

    path    path of a file; a ModelProto is returned unchanged
    Raises  LabError, which names the file and the fault: external data outside the file's folder,
            tensors that claim more numbers than the file holds, a broken graph, an unknown
            operator, a run that takes too long or too much memory
    """
    if isinstance(path, onnx.ModelProto):
        return path
    path = Path(path)
    try:
        _require_file(path)
        digest = sha256(path)
        absolute_path = str(path.resolve())
        if digest not in _made_here and (digest, absolute_path) not in _inspected:
            _inspect_in_child(absolute_path)
            _inspected.add((digest, absolute_path))
        return onnx.load(path)
    except LabError as error:
        raise LabError(
            f"{path.name} is refused. {error.what}",
            expected=error.expected,
            found=error.found,
            fix=error.fix or ADVICE,
        ) from error


def parsed(path):
    """Return the ModelProto of an ONNX file, without any check and without its external data.

    Raises LabError if there is no file, or if the file is no protobuf message.
    """
    _require_file(Path(path))
    try:
        return onnx.load(path, format="protobuf", load_external_data=False)
    except (DecodeError, OSError) as error:
        raise LabError(
            "It is damaged or no ONNX file.", expected="a protobuf message", found=str(error)
        ) from error


def _require_file(path):
    """Raise LabError if a path is no regular file, or if the file is 2 GiB or larger.

    Reading something else, such as a pipe or a device, might wait for ever. A protobuf message, and
    so an ONNX file, is smaller than 2 GiB.
    """
    if not path.is_file():
        raise LabError(
            "There is no such file.", expected="an ONNX file", found=str(path), fix="check the path"
        )
    size = path.stat().st_size
    if size >= LARGEST:
        raise LabError(
            "It is larger than an ONNX file can be.",
            expected="less than 2 GiB",
            found=f"{size:,} bytes",
        )


def known_as_sound() -> list[tuple[str, str]]:
    """Return the files that this process inspected or wrote, as an argument for `trust`.

    The result is a list of (digest, path). For a file that this process wrote, the path is "".
    """
    return sorted(_inspected | {(digest, "") for digest in _made_here})


def trust(sound_files: Iterable[tuple[str, str]]) -> None:
    """Let this process trust the files that its parent process inspected or wrote.

    A file that has changed since then has another digest, and is not trusted.

    sound_files  the result of `known_as_sound` in the parent process
    """
    for digest, path in sound_files:
        if path:
            _inspected.add((digest, path))
        else:
            _made_here.add(digest)


def _inspect_in_child(path):
    """Let a separate process inspect a file. Raises a LabError if the file is not sound."""
    from labkit.export.inspection import inspect

    try:
        run_in_child(partial(inspect, Path(path)), LIMIT_S)
    except ChildEnded as error:
        raise LabError(
            "It cannot be opened without harm.",
            expected=f"a call that comes back within {LIMIT_S} s and fits in memory",
            found=f"the process that tried {error.found}",
        ) from error


def precision_of(model):
    """Return the precision of a ModelProto: "int8", "fp8", "fp32", "fp16" or "bf16".

    A model with DequantizeLinear nodes is "int8", or "fp8" if these read FP8 numbers. A model with
    integer products (`INTEGER_PRODUCTS`) is "int8". Otherwise the precision is the float type of
    most weights.
    """
    stored = {
        tensor.name: onnx.TensorProto.DataType.Name(tensor.data_type)
        for tensor in model.graph.initializer
    }
    quantized = [node for node in model.graph.node if node.op_type == "DequantizeLinear"]
    if quantized:
        read = {stored.get(name, "") for node in quantized for name in node.input}
        return "fp8" if any(kind.startswith("FLOAT8") for kind in read) else "int8"
    if any(node.op_type in INTEGER_PRODUCTS for node in model.graph.node):
        return "int8"
    numbers_by_type = Counter()
    for tensor in model.graph.initializer:
        numbers_by_type[stored[tensor.name]] += math.prod(tensor.dims)
    return FLOATS[max(FLOATS, key=numbers_by_type.__getitem__)]
