"""Engines run models: one engine, one file, one name.

A new engine is one file `NAME.py`, here or in a folder that the environment variable LABKIT_ENGINES names. It holds

RUNS        "torch" (it is given a module in eval mode, on the example's device) or "onnx" (the path of a checked file)
PRECISIONS  which of `PRECISIONS` it serves
NEEDS       the kind of device that it runs on, such as "cuda"; left out where any will do
check()     yields a `labkit.device.packages.Check` for each thing it wants, for the doctor
load(model, example, *, precision, threads)  returns a `labkit.engines.served.Served`, or raises Unavailable

The doctor, the command line, the tests and the lessons' tables find it by itself, in the order of the names.
"""

import importlib
import os
import pkgutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from labkit.errors import LabError, Unavailable, require_known

if TYPE_CHECKING:
    import torch

    from labkit.engines.served import Served

PRECISIONS = ("fp32", "bf16", "fp16", "int8", "fp8")
_NO_ENGINES = ("bench", "deployment", "fidelity", "served")  # modules here that are about engines
_PARTS = ("RUNS", "PRECISIONS", "check", "load")

__path__.extend(filter(None, os.environ.get("LABKIT_ENGINES", "").split(os.pathsep)))


def names(*, runs: str | None = None, precision: str | None = None) -> tuple[str, ...]:
    """The names of all engines, or of those that run "torch" modules or "onnx" files, or serve a precision."""
    listed = {found.name for found in pkgutil.iter_modules(__path__)} - set(_NO_ENGINES)
    found = sorted(name for name in listed if not name.startswith("_"))
    if runs:
        found = [name for name in found if runs == get(name).RUNS]
    if precision:
        found = [name for name in found if precision in get(name).PRECISIONS]
    return tuple(found)


def get(name):
    """The module of an engine; LabError when there is none of this name, or it does not load."""
    require_known(name, names(), "engine")
    try:
        module = importlib.import_module(f"{__name__}.{name}")
        missing = [part for part in _PARTS if not hasattr(module, part)]
        if missing:
            raise AttributeError(f"it has no {', '.join(missing)}")
    except Exception as error:  # a contributed file may fail in any way
        raise LabError(
            f"The engine {name} does not load.",
            expected=f"a module with {', '.join(_PARTS)}",
            found=f"{type(error).__name__}: {error}",
            fix="mend its file, or run `labkit doctor` to see what is missing",
        ) from error
    return module


def load(
    name: str, model_or_onnx: Any, example: "torch.Tensor", *, precision: str = "fp32", threads: int | None = None
) -> "Served":
    """Make a model ready to serve batches like `example`, of any size: a `Served`.

    name           one of `names()`
    model_or_onnx  a torch module (put into eval mode, on the device of `example`), or the path of an ONNX file, which
                   those of torch cannot run
    example        (N, C, H, W) floats or (N, T) int64 tokens
    precision      one of `PRECISIONS`; an ONNX file holds its own; int8 and fp8 need one with Q/DQ nodes
    threads        CPU threads; None: as many as torch uses
    Raises         Unavailable, with the reason and the fix, where the engine or the precision cannot run
    """
    from labkit import device as devices
    from labkit.engines._onnx_file import as_onnx

    engine = get(name)
    require_known(precision, PRECISIONS, "precision")
    if precision not in engine.PRECISIONS:
        raise Unavailable(
            f"{name} has no {precision}.",
            expected=" or ".join(engine.PRECISIONS),
            found=precision,
            fix=f"choose one of these, or the engine {' or '.join(names(precision=precision))}; "
            "int8 and fp8 take an ONNX file that `labkit quantize` wrote",
        )
    settings = {"precision": precision, "threads": threads or devices.threads()}
    if engine.RUNS == "onnx":
        with as_onnx(model_or_onnx, example, precision, getattr(engine, "FROM_FP32", ())) as path:
            served = engine.load(path, example, **settings)
    elif isinstance(model_or_onnx, (str, Path)):
        raise LabError(
            f"{name} runs torch modules, not ONNX files.",
            expected="a torch module",
            found=str(model_or_onnx),
            fix=f"choose the engine {' or '.join(names(runs='onnx'))}",
        )
    else:
        served = engine.load(model_or_onnx.to(example.device).eval(), example, **settings)
    return replace(served, engine=name, precision=precision)
