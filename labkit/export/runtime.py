"""ONNX Runtime, as every module here opens and calls it."""

from collections.abc import Callable, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from labkit import device as devices
from labkit.device import packages
from labkit.errors import LabError
from labkit.export.gate import checked, made_here
from labkit.files import atomic

if TYPE_CHECKING:
    import onnxruntime

# How far ONNX Runtime may change a graph before it runs it; each level includes those before it.
LEVELS = {
    "none": "ORT_DISABLE_ALL",  # run as written
    "basic": "ORT_ENABLE_BASIC",  # constants, redundant nodes, batch norm: still standard operators
    "extended": "ORT_ENABLE_EXTENDED",  # fused operators of its own, such as FusedConv
    "all": "ORT_ENABLE_ALL",  # and another memory layout, made for this machine
}


@contextmanager
def explained(model, task):
    """Turn whatever an ONNX library raises inside into a LabError that names the file and the reason."""
    try:
        yield
    except LabError:
        raise
    except Exception as error:
        name = model.graph.name or "The model" if hasattr(model, "graph") else Path(model).name
        reason = " ".join(str(error).split())
        raise LabError(
            f"{name} cannot be {task}.", found=f"{type(error).__name__}: {reason[:300]}",
            fix="export the model anew, with fixed sides behind the batch",
        ) from error  # fmt: skip


def written(model, path, **about):
    """Save a ModelProto as a file, whole or not at all: the path. `about`: texts to add to its metadata."""
    import onnx

    onnx.helper.set_model_props(model, notes(model) | about)
    with atomic(path) as temporary:
        onnx.save(model, temporary)
    return made_here(Path(path))


def notes(model):
    """{key: text} of the metadata of a ModelProto."""
    return {entry.key: entry.value for entry in model.metadata_props}


def session(
    model: Any,
    level: str = "all",
    *,
    threads: int | None = None,
    providers: Sequence = ("CPUExecutionProvider",),
    **settings: Any,
) -> "onnxruntime.InferenceSession":
    """Open a model that has passed `checked`: an `onnxruntime.InferenceSession`.

    model     a path or a ModelProto
    level     one of `LEVELS`
    threads   None: as many as `labkit.device.threads` says
    providers what shall run it, best first; those that are not here are left out
    settings  attributes of `onnxruntime.SessionOptions`, such as enable_profiling=True
    Raises    LabError naming the file and the reason; Unavailable without ONNX Runtime
    """
    onnxruntime = packages.imported("onnxruntime")
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, LEVELS[level])
    options.log_severity_level = 4  # what it logs it also raises
    options.intra_op_num_threads = threads or devices.threads()
    options.add_session_config_entry("session.force_spinning_stop", "1")  # else what comes next is slowed down
    for name, value in settings.items():
        setattr(options, name, value)
    here = [name for name in dict.fromkeys(providers) if name in onnxruntime.get_available_providers()]
    with explained(model, "opened by ONNX Runtime"):
        source = model.SerializeToString() if hasattr(model, "graph") else str(model)
        return onnxruntime.InferenceSession(source, options, providers=here)


def answers(opened, batch, *, outputs=None):
    """What a session answers: a list of arrays, of the outputs named (None: all).

    batch   an array, a tuple of one for each input in their order, or {name of the input: array}
    Raises  LabError when the model does not take them, or fails
    """
    inputs = {node.name: node.shape for node in opened.get_inputs()}
    names, arrays = list(inputs), batch if isinstance(batch, tuple) else (batch,)
    if isinstance(batch, dict):
        names, arrays = list(batch), list(batch.values())
    try:
        return opened.run(outputs, dict(zip(names, arrays, strict=True)))
    except Exception as error:
        expected = ", ".join(f"{name} {shape}" for name, shape in inputs.items())
        raise refused("ONNX Runtime", arrays, error, expected) from error


def refused(engine, batch, error, expected="the inputs of the model, in its order, with its shapes and types"):
    """The LabError of a batch that an engine failed on."""
    shapes = ", ".join(str(tuple(each.shape)) for each in batch) or "none"
    return LabError(
        f"{engine}: the model refuses a batch of shape {shapes}.",
        expected=expected,
        found=" ".join(str(error).split())[:300],
        fix="give what is expected, and tokens below the size of its vocabulary; for another batch or image size, "
        "export the model with that side open",
    )


def as_written(path: str | Path, *, level: str = "none", whole: bool = False) -> Callable:
    """A function from a batch to the output (both tensors) that runs the file as it is written, or up to `level`.

    whole  a list of all outputs, not the first alone
    """
    import torch

    checked(path)
    opened = session(path, level)

    def run(*batch):
        found = [torch.from_numpy(each) for each in answers(opened, tuple(each.cpu().numpy() for each in batch))]
        return found if whole else found[0]

    return run
