"""What runs a model: one engine, one file, one name.

A new engine is a module here with `load(model_or_onnx, example, *, precision, threads)`, and its name in `NAMES`.
"""

import importlib

from labkit.errors import LabError

NAMES = ("eager", "inductor", "onnxruntime", "openvino", "tensorrt")
PRECISIONS = ("fp32", "bf16", "fp16", "int8")


def load(name, model_or_onnx, example, *, precision="fp32", threads=None):
    """Make a model ready to serve batches like `example`, of any size: a `Served`.

    name           one of `NAMES`
    model_or_onnx  a torch module (put into eval mode, on the device of `example`), or the path of an ONNX file, which
                   eager and inductor cannot run
    example        (N, C, H, W) floats or (N, T) int64 tokens
    precision      one of `PRECISIONS`; an ONNX file holds its own, and int8 needs a file with Q/DQ nodes
    threads        CPU threads; None: as many as torch uses
    Raises         Unavailable, with the reason and the fix, where the engine or the precision cannot run
    """
    for what, given, known in (("engine", name, NAMES), ("precision", precision, PRECISIONS)):
        if given not in known:
            raise LabError(
                f"There is no {what} {given!r}.", expected=" or ".join(known), found=given, fix=f"choose one {what}"
            )
    module = importlib.import_module(f"labkit.engines.{name}")
    return module.load(model_or_onnx, example, precision=precision, threads=threads)
