"""The process in which a file from anywhere is opened first; see `gate`. It reads paths and writes what is wrong.

What takes too long ends the process, what takes too much memory raises here: neither needs a check of its own.
"""

import faulthandler
import json
import math
import os
import sys
from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper

from labkit.errors import LabError
from labkit.export.gate import LARGEST, parsed
from labkit.export.runtime import answers, session
from labkit.export.walk import graphs, holders, tensors, weights_aside

MEMORY, COPIES = 2**32, 8  # bytes of memory a file may take: so many, or so many times its own if that is more
# What ONNX Runtime cannot run, another engine may be able to; but with these words it condemns a file.
CONDEMNED = ("not a registered function/op", "allocat", "bad_alloc", "require more than", "MemoryError")
# The words of onnx's checker about external data that it would have to leave the file's folder for.
OUTSIDE = ("points outside", "outside model directory", "absolute path", "symbolic link", "hard links")


def main():
    """Answer each line [path, seconds] with null, or with the parts of a LabError."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # libraries print what they like
    for line in sys.stdin:
        path, seconds = json.loads(line)
        faulthandler.dump_traceback_later(seconds, exit=True)
        problem = _found_in(Path(path))
        faulthandler.cancel_dump_traceback_later()
        print(json.dumps(problem), file=answers, flush=True)


def _found_in(path):
    """None for a file that is sound, else {part of a LabError: text}: any exception of the libraries is a reason."""
    try:
        inspect(path)
    except LabError as error:
        return {"what": error.what, "expected": error.expected, "found": error.found, "fix": error.fix}
    except Exception as error:
        text = " ".join(f"{type(error).__name__}: {error}".split())
        what, expected = "It is damaged, or does not hold together.", "a valid graph"
        if any(words in text for words in OUTSIDE):
            what, expected = "It names data outside its folder.", "external data in ordinary files beside it"
        return {"what": what, "expected": expected, "found": text[:500]}
    return None


def inspect(path):
    """Every check of a file, and one call of it."""
    model = parsed(path)
    _limit_memory(model, path)
    onnx.checker.check_model(str(path))  # its structure, and that external data lies beside it
    if model.graph.sparse_initializer:
        raise LabError("It holds sparse tensors: few values that claim to be many.", fix="store them dense")
    for holder, opsets in holders(model):
        _require_clear(holder, opsets)
    with weights_aside(model):
        inferred = onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True, data_prop=True).graph
    for value in (*inferred.input, *inferred.output, *inferred.value_info):
        _require_size(value)
    onnx.load_external_data_for_model(model, str(path.parent))
    for tensor in tensors(model):
        numpy_helper.to_array(tensor)  # its bytes are as many as its shape says
    _run_once(model, path)


def _limit_memory(model, path):
    """Let this process have no more memory than a file with its external data should need, where a system can do so."""
    external = [tensor for tensor in tensors(model) if tensor.external_data]
    places = {entry.value for tensor in external for entry in tensor.external_data if entry.key == "location"}
    files = [file for file in (path, *(path.parent / place for place in places)) if file.is_file()]
    held, claimed = sum(file.stat().st_size for file in files), sum(math.prod(tensor.dims) for tensor in external)
    if claimed > 2 * held:  # each claim is a copy in memory
        found = f"{claimed:,} values claimed, {held:,} bytes there"
        raise LabError("Its tensors claim the same external data over and over.", expected="each once", found=found)
    try:
        import resource
    except ImportError:  # Windows
        return
    most = resource.getrlimit(resource.RLIMIT_AS)[1]
    resource.setrlimit(resource.RLIMIT_AS, (max(MEMORY, COPIES * held), most))


def _require_clear(holder, opsets):
    """Refuse operator sets and names that the checker lets pass, and that libraries fall over later."""
    versions = [opset.version for opset in opsets if opset.domain in ("", "ai.onnx")]
    newest = onnx.defs.onnx_opset_version()
    if len(versions) > 1 or max(versions, default=1) > newest:
        raise LabError("It states no usable operator set.", expected=f"one up to {newest}", found=str(versions))
    for name in (node.name for graph in graphs(holder) for node in graph.node):
        if not name.isprintable():
            raise LabError("A node's name is no line of text.", expected="a name", found=repr(name)[:200])


def _require_size(value):
    """Refuse an input, an output or an inner value that is no tensor, or a larger one than memory should hold."""
    if value.type.WhichOneof("value") != "tensor_type":
        raise LabError(f"{value.name!r} is no tensor.", found=value.type.WhichOneof("value") or "no type")
    kind = value.type.tensor_type.elem_type
    size = math.prod(_shape_of(value)) * (helper.tensor_dtype_to_np_dtype(kind).itemsize if kind else 1)
    if not 0 <= size <= LARGEST:  # of a file or of one tensor: no network of the course comes near
        found = f"{size / 2**30:,.1f} GiB"
        raise LabError(f"{value.name!r} claims an impossible size.", expected="at most 2 GiB", found=found)


def _shape_of(value):
    """The sides of a ValueInfoProto, 1 for each that may vary."""
    return [side.dim_value if side.HasField("dim_value") else 1 for side in value.type.tensor_type.shape.dim]


def _run_once(model, path):
    """Let ONNX Runtime open the file and call it with one item of ones."""
    stored = {tensor.name for tensor in model.graph.initializer}
    wanted = [value for value in model.graph.input if value.name not in stored]
    types = [helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type) for value in wanted]
    try:
        answers(session(path, threads=1), *map(np.ones, map(_shape_of, wanted), types))
    except Exception as error:
        if any(words in str(error) for words in CONDEMNED):
            raise


if __name__ == "__main__":
    main()
