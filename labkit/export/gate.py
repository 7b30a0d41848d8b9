"""The gate for ONNX files from anywhere: a process apart opens the file first, checks it, and runs it once.

Whatever a file does to its reader (fills the memory, runs without end, crashes a library), it does it there; the
checks themselves stand in `inspection`. What a gate cannot know is whether the network is a good one: `parity` and a
test set tell.
Cost    about half a second per file, once; nothing for a file that this process wrote itself
"""

import functools
import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import onnx
from google.protobuf.message import DecodeError

from labkit.errors import LabError
from labkit.files import sha256

LARGEST = 2**31  # bytes of the file itself; its external data may be more
LIMIT_S = 40  # of computing, for one file; those of the lessons take about a second
PATIENCE = 3  # times as long it may take on a busy machine
ADVICE = "do not use it; export the model anew, or ask where the file comes from"
INTEGER_PRODUCTS = ("MatMulInteger", "ConvInteger")
FLOATS = {"FLOAT": "fp32", "FLOAT16": "fp16", "BFLOAT16": "bf16"}

_made_here: set[str] = set()  # digests of files


def made_here(path: Path) -> Path:
    """The path of a file that this process wrote, of a network in memory or a checked file: `checked` trusts it."""
    _made_here.add(sha256(path))
    return path


def checked(path: str | Path | onnx.ModelProto) -> onnx.ModelProto:
    """Load an ONNX file, with its external data, after every check: an `onnx.ModelProto`; one comes back as it is.

    Raises LabError, naming the file and what is wrong: external data outside the file's folder, sizes that the bytes do
    not bear out, broken or endless graphs, unknown operators, a call that does not come back.
    """
    if isinstance(path, onnx.ModelProto):
        return path
    path = Path(path)
    try:
        _require_file(path)
        if (digest := sha256(path)) not in _made_here:
            _inspected(digest, str(path.resolve()))
        return onnx.load(path)
    except LabError as error:
        parts = {"expected": error.expected, "found": error.found, "fix": error.fix or ADVICE}
        raise LabError(f"{path.name} is refused. {error.what}", **parts) from error


def parsed(path):
    """The message in the file as it stands there: external data is not followed, and nothing is checked."""
    _require_file(Path(path))
    try:
        return onnx.load(path, format="protobuf", load_external_data=False)
    except (DecodeError, OSError) as error:
        raise LabError("It is damaged or no ONNX file.", expected="a protobuf message", found=str(error)) from error


def _require_file(path):
    """Refuse what need not be read: it would wait for ever, or be larger than a protobuf message can be."""
    if not path.is_file():
        raise LabError("There is no such file.", expected="an ONNX file", found=str(path), fix="check the path")
    if (size := path.stat().st_size) >= LARGEST:
        raise LabError("It is larger than an ONNX file can be.", expected="less than 2 GiB", found=f"{size:,} bytes")


@functools.lru_cache(maxsize=1024)
def _inspected(digest, path):
    """Let a fresh process inspect a file: a LabError when it is not sound. Only what passes is remembered."""
    command = [sys.executable, "-P", "-m", "labkit.export.inspection", path, str(LIMIT_S)]
    own = {"PYTHONPATH": os.pathsep.join(sys.path)}
    own |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}  # each thread would claim memory
    try:
        done = subprocess.run(command, capture_output=True, timeout=PATIENCE * LIMIT_S, env=os.environ | own)
        said, ended = done.stdout, f"the process that tried ended with status {done.returncode}"
    except subprocess.TimeoutExpired:
        said, ended = b"", "the process that tried did not end"
    if not said:
        expected = f"a call that comes back within {LIMIT_S} s and fits in memory"
        raise LabError("It cannot be opened without harm.", expected=expected, found=ended)
    if problem := json.loads(said):
        raise LabError(**problem)


def precision_of(model):
    """What a ModelProto holds: "int8" or "fp8" (with Q/DQ nodes, or integer products), else the type of most of its
    weights: "fp32", "fp16" or "bf16"."""
    stored = {tensor.name: onnx.TensorProto.DataType.Name(tensor.data_type) for tensor in model.graph.initializer}
    quantized = [node for node in model.graph.node if node.op_type == "DequantizeLinear"]
    if quantized:
        read = {stored.get(name, "") for node in quantized for name in node.input}
        return "fp8" if any(kind.startswith("FLOAT8") for kind in read) else "int8"
    if any(node.op_type in INTEGER_PRODUCTS for node in model.graph.node):
        return "int8"
    held = Counter()
    for tensor in model.graph.initializer:
        held[stored[tensor.name]] += tensor.ByteSize()
    return FLOATS[max(FLOATS, key=held.__getitem__)]
