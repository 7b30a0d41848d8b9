"""Inspect an ONNX file in a separate process, before any other process opens it; see `gate`.

Two faults need no check here. If the inspection takes too long, the parent process ends it. If it
takes too much memory, the limit on memory raises an error.
"""

import contextlib
import os
import resource

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from labkit.errors import LabError
from labkit.export.gate import parsed
from labkit.export.inputs import dims, graph_inputs
from labkit.export.runtime import answers, session, without_kernel
from labkit.export.walk import inside

# Memory that a file may take: MEMORY bytes, or COPIES times its own bytes if that is more.
MEMORY = 2**31
COPIES = 8
BLOCK = 512  # bytes: the unit in which the system says how much of a file lies on the disk
# The words of libraries that have no memory left.
TOO_MUCH = ("allocat", "bad_alloc", "require more than", "MemoryError")
# The words of onnx's checker about external data that it would have to leave the file's folder for.
OUTSIDE = (
    "points outside",
    "outside model directory",
    "absolute path",
    "symbolic link",
    "hard links",
)
# The words of onnx about an operator of before opset 22, which by its letter takes no bfloat16.
# TensorRT runs it.
BFLOAT16 = "unsupported type: tensor(bfloat16)"
REASONS = {  # words of a library: what is wrong, what was expected
    OUTSIDE: ("It names data outside its folder.", "external data in ordinary files beside it"),
    TOO_MUCH: (
        "It takes more memory than it should need.",
        f"{COPIES} times its own bytes, or 2 GiB if that is more",
    ),
}
DAMAGED = ("It is damaged, or does not hold together.", "a valid graph")  # for all other words


def limit_memory(further_bytes):
    """Allow this process to take `further_bytes` more memory than it has now, and no more."""
    import psutil

    most = psutil.Process().memory_info().vms + further_bytes
    # there is a lower limit already, or the system has none
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_AS, (most, most))


def inspect(path):
    """Check an ONNX file and run it once. The memory of this process stays limited afterwards.

    Raises  LabError for any fault of the file; an exception of a library is named in it
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
        summary, expected = _reason_of(text)
        raise LabError(summary, expected=expected, found=text[:500]) from error


def _reason_of(text):
    """Classify an error message of a library.

    Returns two texts: what is wrong with the file, and what was expected.
    """
    for words, reason in REASONS.items():
        if any(word in text for word in words):
            return reason
    return DAMAGED


def _limit_memory(model, path):
    """Limit the memory of this process to what a file of this size should need.

    External data count, too. The size is the number of bytes on the disk: a sparse file may claim
    to be much larger than that.
    """
    files = [path, *(path.parent / location for location in _locations(model))]
    bytes_on_disk = sum(BLOCK * file.stat().st_blocks for file in files if file.is_file())
    limit_memory(max(MEMORY, COPIES * bytes_on_disk))


def _locations(model):
    """Return the paths of the files that hold a model's tensors, relative to its folder."""
    tensors = inside(model, TensorProto)
    return {
        entry.value
        for tensor in tensors
        for entry in tensor.external_data
        if entry.key == "location"
    }


def _check(model, path):
    """Check what ONNX Runtime does not check, and load the external data into the model.

    Raises LabError for missing files and sparse tensors, and the errors of the onnx library.
    """
    missing = sorted(file for file in _locations(model) if not os.path.lexists(path.parent / file))
    if missing:
        raise LabError(
            "The file with its weights is missing.",
            expected=f"{', '.join(missing)} beside it",
            found="no such file",
            fix="put it into the same folder: the two belong together",
        )
    try:
        # structure, shapes, external data that lies beside it
        onnx.checker.check_model(str(path), full_check=True)
    except onnx.shape_inference.InferenceError as error:
        if BFLOAT16 not in str(error):
            raise
        onnx.checker.check_model(str(path))
    if model.graph.sparse_initializer:
        raise LabError(
            "It holds sparse tensors: few values that claim to be many.", fix="store them dense"
        )
    onnx.load_external_data_for_model(model, str(path.parent))
    for tensor in inside(model, TensorProto):
        numpy_helper.to_array(tensor)  # its bytes are as many as its shape says


def _run_once(model, path):
    """Let ONNX Runtime open the file and run it with an input of ones, one item.

    A file passes if ONNX Runtime has no kernels for it on this machine, or if it does not take
    ones. Optimizations are off, because they turn a sound FP8 file into one with operators that
    ONNX Runtime does not have.
    """
    try:
        opened = session(path, "none", threads=1)
    except LabError as error:
        if without_kernel(error):
            return
        raise RuntimeError(error.found) from error
    batch = []
    for value in graph_inputs(model):
        dtype = helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
        shape = [side if isinstance(side, int) else 1 for side in dims(value)]
        batch.append(np.ones(shape, dtype))
    try:
        answers(opened, tuple(batch))
    except LabError as error:
        if any(words in error.found for words in TOO_MUCH):
            raise RuntimeError(error.found) from error
