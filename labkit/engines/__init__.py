"""Engines run a network, as ONNX Runtime and torch.compile do. Each engine is one file.

To add an engine, write a file `NAME.py` in this folder. It holds

RUNS        "torch" if its `load` takes a torch module, in eval mode and on the device of the
            example; "onnx" if its `load` takes the path of a checked ONNX file
PRECISIONS  the precisions that the engine can run in, a choice of `PRECISIONS` below
NEEDS       the kind of device that the engine runs on, such as "cuda"; leave it out if the engine
            runs on any device
check()     yields a `labkit.device.packages.Check` for each thing that the engine needs, such as a
            package; `labkit doctor` shows them
load(model, example, *, precision, threads)  returns a `labkit.engines.served.Served`, or raises
                                             Unavailable

Nothing else has to be changed: the command line, `labkit doctor`, the tests and the tables of the
lessons look for engines in this folder, and list them by name.
"""

import importlib
import pkgutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from labkit.errors import LabError, Unavailable, require_known

if TYPE_CHECKING:
    import torch

    from labkit.engines.served import Served

PRECISIONS = ("fp32", "bf16", "fp16", "int8", "fp8")
# modules of this folder that are no engines
_NO_ENGINES = (
    "bench",
    "cache",
    "deployment",
    "fidelity",
    "misfit",
    "opening",
    "racing",
    "served",
)
_REQUIRED_NAMES = ("RUNS", "PRECISIONS", "check", "load")


def names(*, runs: str | None = None, precision: str | None = None) -> tuple[str, ...]:
    """Return the sorted names of all engines, or of those that match the arguments.

    runs       "torch" or "onnx": only engines that run such models; None: all
    precision  one of `PRECISIONS`: only engines that run in it; None: all
    """
    modules = {module.name for module in pkgutil.iter_modules(__path__)} - set(_NO_ENGINES)
    engines = sorted(name for name in modules if not name.startswith("_"))
    if runs:
        engines = [name for name in engines if runs == get(name).RUNS]
    if precision:
        engines = [name for name in engines if precision in get(name).PRECISIONS]
    return tuple(engines)


def get(name):
    """Return the module of an engine.

    Raises LabError if no engine has this name, or if its module cannot be imported or lacks one of
    the required names.
    """
    require_known(name, names(), "engine")
    try:
        module = importlib.import_module(f"{__name__}.{name}")
        missing = [required for required in _REQUIRED_NAMES if not hasattr(module, required)]
        if missing:
            raise AttributeError(f"it has no {', '.join(missing)}")
    except Exception as error:  # a contributed file may fail in any way
        raise LabError(
            f"The engine {name} does not load.",
            expected=f"a module with {', '.join(_REQUIRED_NAMES)}",
            found=f"{type(error).__name__}: {error}",
            fix="mend its file, or run `labkit doctor` to see what is missing",
        ) from error
    return module


def load(
    name: str,
    model_or_onnx: Any,
    example: "torch.Tensor",
    *,
    precision: str = "fp32",
    threads: int | None = None,
) -> "Served":
    """Load a model into an engine, for batches of any size. Returns a `Served`.

    name           one of `names()`
    model_or_onnx  a torch module or the path of an ONNX file. An engine whose RUNS is "torch" takes
                   modules only. It puts the module into eval mode, and moves it to the device of
                   `example`
    example        a batch that shows shape and type: (N, C, H, W) floats or (N, T) int64 tokens
    precision      one of `PRECISIONS`. An ONNX file runs in the precision that it holds; some
                   engines also run a file of fp32 in bf16 or fp16. int8 and fp8 need an ONNX file
                   with Q/DQ nodes
    threads        CPU threads; None: as many as torch uses
    Raises         Unavailable: the engine is not installed, or cannot run this model or this
                   precision; the error names reason and remedy. LabError: the path is that of a
                   compiled file instead of its model; the ONNX file is damaged or holds another
                   precision
    """
    from labkit import device as devices
    from labkit.engines._onnx_file import as_onnx
    from labkit.engines.cache import refuse_compiled_file

    # What the engine does not have, and what no engine loads, is said before anything is opened.
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
    if isinstance(model_or_onnx, (str, Path)):
        refuse_compiled_file(model_or_onnx)

    # An engine of ONNX graphs is given a file, one of torch modules the module.
    settings = {"precision": precision, "threads": threads or devices.threads()}
    if engine.RUNS == "onnx":
        with as_onnx(model_or_onnx, example, precision, getattr(engine, "FROM_FP32", ())) as path:
            served = _loaded(engine, name, path, example, settings)
    elif isinstance(model_or_onnx, (str, Path)):
        raise Unavailable(
            f"{name} runs torch modules, not ONNX files.",
            expected="a torch module",
            found=str(model_or_onnx),
            fix=f"choose the engine {' or '.join(names(runs='onnx'))}",
        )
    else:
        served = _loaded(engine, name, model_or_onnx.to(example.device).eval(), example, settings)
    return replace(served, engine=name, precision=precision)


def _loaded(engine, name, model, example, settings):
    """Call an engine's `load`. Returns its `Served`.

    An error that is no LabError becomes an Unavailable with the reason.

    engine    the engine's module
    name      the engine's name
    settings  {"precision": ..., "threads": ...}
    """
    try:
        return engine.load(model, example, **settings)
    except LabError:
        raise
    except Exception as error:
        raise Unavailable(
            f"{name} cannot run this model.",
            expected="operators, types and shapes that the engine knows",
            found=f"{type(error).__name__}: {' '.join(str(error).split())[:300]}",
            fix="choose another engine, or export the model without what it does not know",
        ) from error
