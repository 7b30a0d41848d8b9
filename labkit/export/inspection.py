"""The process in which a file from anywhere is opened first; see `gate`.

    python -m labkit.export.inspection PATH SECONDS

What computes too long is killed, what takes too much memory raises here: neither needs a check of its own.
"""

import contextlib
import json
import os
import resource
import sys
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from labkit.errors import LabError
from labkit.export.gate import parsed
from labkit.export.inputs import dims, wanted
from labkit.export.runtime import answers, session
from labkit.export.walk import inside

MEMORY, COPIES = 2**31, 8  # bytes of memory a file may take: so many, or so many times its own if that is more
BLOCK = 512  # bytes: the unit in which the system says how much of a file lies on the disk
# The words of libraries that have no memory left.
TOO_MUCH = ("allocat", "bad_alloc", "require more than", "MemoryError")
# The words of onnx's checker about external data that it would have to leave the file's folder for.
OUTSIDE = ("points outside", "outside model directory", "absolute path", "symbolic link", "hard links")
REASONS = {  # words of a library: what is wrong, what was expected
    OUTSIDE: ("It names data outside its folder.", "external data in ordinary files beside it"),
    TOO_MUCH: ("It takes more memory than it should need.", f"{COPIES} times its own bytes, or 2 GiB if that is more"),
    ("",): ("It is damaged, or does not hold together.", "a valid graph"),
}


def main():
    """Inspect a file within some seconds of computing: print null, or the parts of a LabError, as JSON."""
    path, seconds = sys.argv[1:]
    limit_computing(int(seconds))
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # libraries print what they like
    problem = None
    try:
        inspect(Path(path))
    except LabError as error:
        problem = vars(error)
    print(json.dumps(problem), file=out)


def limit_computing(seconds):
    """Let this process compute for so many seconds at most: a busy machine takes nothing from them."""
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))


def limit_memory(more):
    """Let this process take only so many bytes more than it has now."""
    import psutil

    most = psutil.Process().memory_info().vms + more
    with contextlib.suppress(ValueError, OSError):  # there is a lower limit already, or the system has none
        resource.setrlimit(resource.RLIMIT_AS, (most, most))


def inspect(path):
    """Check a file, and call it once. From then on the memory of this process is limited.

    Raises  LabError: any exception of the libraries is a reason
    """
    try:
        model = parsed(path)
        _limit_memory(model, path)
        _check(model, path)
        _run_once(model, path)
    except LabError:
        raise
    except Exception as error:
        text = " ".join(f"{type(error).__name__}: {error}".split())
        what, expected = next(reason for words, reason in REASONS.items() if any(each in text for each in words))
        raise LabError(what, expected=expected, found=text[:500]) from error


def _limit_memory(model, path):
    """Let this process take only as much more memory as a file with its external data should need.

    A file counts with the bytes that lie on the disk: a sparse one claims to be far larger than it is.
    """
    files = (path, *(path.parent / place for place in _places(model)))
    held = sum(BLOCK * file.stat().st_blocks for file in files if file.is_file())
    limit_memory(max(MEMORY, COPIES * held))


def _places(model):
    """Where the tensors of a model say that their bytes lie, relative to its folder."""
    tensors = inside(model, TensorProto)
    return {entry.value for tensor in tensors for entry in tensor.external_data if entry.key == "location"}


def _check(model, path):
    """Check what ONNX Runtime does not. The external data is in the model afterwards."""
    missing = sorted(place for place in _places(model) if not os.path.lexists(path.parent / place))
    if missing:
        raise LabError(
            "The file with its weights is missing.",
            expected=f"{', '.join(missing)} beside it",
            found="no such file",
            fix="put it into the same folder: the two belong together",
        )
    onnx.checker.check_model(str(path), full_check=True)  # structure, shapes, external data that lies beside it
    if model.graph.sparse_initializer:
        raise LabError("It holds sparse tensors: few values that claim to be many.", fix="store them dense")
    onnx.load_external_data_for_model(model, str(path.parent))
    for tensor in inside(model, TensorProto):
        numpy_helper.to_array(tensor)  # its bytes are as many as its shape says


def _run_once(model, path):
    """Let ONNX Runtime open the file as it is written, and call it with one item of ones.

    Its optimizations are off: they make of a sound file in FP8 operators that ONNX Runtime does not have.
    """
    try:
        opened = session(path, "none", threads=1)
    except LabError as error:
        if "NotImplemented" in error.found:  # another engine may be able to run it
            return
        raise RuntimeError(error.found) from error
    types = [helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type) for value in wanted(model)]
    shapes = [[side if isinstance(side, int) else 1 for side in dims(value)] for value in wanted(model)]
    try:
        answers(opened, tuple(map(np.ones, shapes, types)))
    except LabError as error:
        if any(words in error.found for words in TOO_MUCH):
            raise RuntimeError(error.found) from error


if __name__ == "__main__":
    main()
