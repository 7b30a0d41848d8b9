"""ONNX Runtime, as every module here opens and calls it."""

from contextlib import contextmanager
from pathlib import Path

from labkit import device as devices
from labkit.device import packages
from labkit.errors import LabError
from labkit.export.gate import checked
from labkit.files import atomic

# How far ONNX Runtime may change a graph before it runs it; each level includes those before it.
LEVELS = {
    "none": "ORT_DISABLE_ALL",  # run as written
    "basic": "ORT_ENABLE_BASIC",  # constants, redundant nodes, batch norm: still standard operators
    "extended": "ORT_ENABLE_EXTENDED",  # fused operators of its own, such as FusedConv
    "all": "ORT_ENABLE_ALL",  # and another memory layout, made for this machine
}


@contextmanager
def explained(name, task):
    """Turn whatever an ONNX library raises inside into a LabError that names the file and the reason."""
    try:
        yield
    except LabError:
        raise
    except Exception as error:
        reason = " ".join(str(error).split())
        raise LabError(
            f"{name} cannot be {task}.", found=f"{type(error).__name__}: {reason[:300]}",
            fix="export the model anew, with fixed sides behind the batch",
        ) from error  # fmt: skip


def written(model, path, **about):
    """Save a ModelProto as a file, whole or not at all: the path. `about`: texts for its metadata."""
    import onnx

    if about:
        onnx.helper.set_model_props(model, about)
    with atomic(path) as temporary:
        onnx.save(model, temporary)
    return Path(path)


def session(model, level="all", *, threads=None, providers=("CPUExecutionProvider",), **settings):
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
    is_path = isinstance(model, (str, Path))
    with explained(Path(model).name if is_path else model.graph.name or "The model", "opened by ONNX Runtime"):
        source = str(model) if is_path else model.SerializeToString()
        return onnxruntime.InferenceSession(source, options, providers=here)


def answers(opened, *arrays, outputs=None):
    """What a session answers to one array per input: a list of arrays, of the outputs named (None: all).

    Raises  LabError when it does not take them, or fails
    """
    inputs = opened.get_inputs()
    try:
        if len(arrays) != len(inputs):
            raise ValueError(f"{len(arrays)} arrays for {len(inputs)} inputs")
        return opened.run(outputs, {node.name: array for node, array in zip(inputs, arrays, strict=True)})
    except Exception as error:
        raise LabError(
            f"The model refuses a batch of shape {', '.join(str(tuple(array.shape)) for array in arrays)}.",
            expected=", ".join(f"{node.name} {node.shape}" for node in inputs),
            found=" ".join(str(error).split())[:300],
            fix="export it with a dynamic batch dimension; does its Python code branch on the batch size?",
        ) from error


def as_written(path, *, level="none", whole=False):
    """A function from a batch to the output (both tensors) that runs the file as it is written, or up to `level`.

    whole  a list of all outputs, not the first alone
    """
    import torch

    checked(path)
    opened = session(path, level)

    def run(*batch):
        found = [torch.from_numpy(each) for each in answers(opened, *(each.cpu().numpy() for each in batch))]
        return found if whole else found[0]

    return run
