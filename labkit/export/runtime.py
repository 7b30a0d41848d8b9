"""Open and call models in ONNX Runtime: every module of this folder uses these functions."""

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

# How far ONNX Runtime may change a graph before running it; each level includes the earlier levels.
LEVELS = {
    "none": "ORT_DISABLE_ALL",  # run as written
    "basic": "ORT_ENABLE_BASIC",  # constants, redundant nodes, batch norm: still standard operators
    "extended": "ORT_ENABLE_EXTENDED",  # fused operators of its own, such as FusedConv
    "all": "ORT_ENABLE_ALL",  # and another memory layout, made for this machine
}

# Words about a sound file that ONNX Runtime has no kernels for: another engine may run it.
NO_KERNEL = (
    "NotImplemented",
    "NOT_IMPLEMENTED",
    "Could not find an implementation",
    "tensor(bfloat16)",
)


def without_kernel(error):
    """Return True if a LabError says that ONNX Runtime has no kernels for a sound file."""
    return any(words in str(error.found) for words in NO_KERNEL)


@contextmanager
def explained(model, task):
    """Turn any error that an ONNX library raises inside the context into a LabError.

    The LabError names the file and the reason.

    model  a path or a ModelProto
    task   what was tried, for the message, such as "quantized"
    """
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


def write_unchecked(model, path, **metadata):
    """Save a ModelProto for a short time, such as a part of a graph that is run once.

    Returns the path. The file is not checked: files for the user are written by
    `labkit.export.write`, which checks them.

    metadata  texts to add to the metadata of the model
    """
    import onnx

    onnx.helper.set_model_props(model, notes(model) | metadata)
    with atomic(path) as temporary:
        onnx.save(model, temporary)
    return made_here(Path(path))


def notes(model):
    """Return the metadata of a ModelProto: {key: text}."""
    return {entry.key: entry.value for entry in model.metadata_props}


def session(
    model: Any,
    level: str = "all",
    *,
    threads: int | None = None,
    providers: Sequence = ("CPUExecutionProvider",),
    folder: Path | None = None,
    **settings: Any,
) -> "onnxruntime.InferenceSession":
    """Open a model in ONNX Runtime. Returns an `onnxruntime.InferenceSession`.

    The model is not checked: a file from elsewhere must have passed `checked` before.

    model      a path or a ModelProto
    level      one of `LEVELS`: how far ONNX Runtime may rewrite the graph
    threads    CPU threads; None: as many as `labkit.device.threads` says
    providers  names of ONNX Runtime's execution providers, the preferred one first. Providers that
               are not installed are left out
    folder     the folder of the weights, for a ModelProto whose weights are in a second file
    settings   attributes of `onnxruntime.SessionOptions`, such as enable_profiling=True
    Raises     LabError, which names the file and the reason; Unavailable without ONNX Runtime
    """
    onnxruntime = packages.imported("onnxruntime")
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, LEVELS[level])
    options.log_severity_level = 4  # what it logs it also raises
    options.intra_op_num_threads = threads or devices.threads()
    # otherwise waiting threads slow down whatever runs next
    options.add_session_config_entry("session.force_spinning_stop", "1")
    if folder is not None:
        options.add_session_config_entry(
            "session.model_external_initializers_file_folder_path", str(folder)
        )
    for name, value in settings.items():
        setattr(options, name, value)
    available = onnxruntime.get_available_providers()
    usable = [name for name in dict.fromkeys(providers) if name in available]
    with explained(model, "opened by ONNX Runtime"):
        source = model.SerializeToString() if hasattr(model, "graph") else str(model)
        return onnxruntime.InferenceSession(source, options, providers=usable)


def session_as_written(model: Any, *, threads: int | None = None) -> "onnxruntime.InferenceSession":
    """Open a model so that ONNX Runtime computes and rounds exactly as the file says.

    The graph is not rewritten. Each result that is float16 in the file is rounded to float16.
    Returns an `onnxruntime.InferenceSession`.

    model    a path or a ModelProto
    threads  as in `session`
    """
    import onnx

    from labkit.export.half import has_float16, with_roundings

    folder = None
    graph = model
    if not hasattr(model, "graph"):
        folder = Path(model).resolve().parent
        graph = onnx.load(model, load_external_data=False)
    if not has_float16(graph):
        return session(model, "none", threads=threads)
    return session(with_roundings(graph), "none", threads=threads, folder=folder)


def answers(opened, batch, *, outputs=None):
    """Run a session on a batch. Returns a list of arrays, one for each output.

    opened   the session
    batch    an array; or a tuple with an array for each input, in order; or {name of an input:
             array}
    outputs  names of the outputs to return; None: all
    Raises   LabError: the model does not take the batch, or fails
    """
    inputs = {node.name: node.shape for node in opened.get_inputs()}
    if isinstance(batch, dict):
        names = list(batch)
        arrays = list(batch.values())
    else:
        names = list(inputs)
        arrays = batch if isinstance(batch, tuple) else (batch,)
    if len(arrays) != len(names):
        raise LabError(
            f"The model has {len(names)} inputs.",
            expected=", ".join(f"{name} {shape}" for name, shape in inputs.items()),
            found=f"{len(arrays)} for each call",
            fix="give all of them: on the command line --data FILE.npz, with an array for each name",
        )
    try:
        return opened.run(outputs, dict(zip(names, arrays, strict=True)))
    except Exception as error:
        expected = ", ".join(f"{name} {shape}" for name, shape in inputs.items())
        raise refused("ONNX Runtime", arrays, error, expected) from error


def refused(
    engine,
    batch,
    error,
    expected="the inputs of the model, in its order, with its shapes and types",
):
    """Return the LabError for a batch on which an engine failed.

    engine    name of the engine
    batch     the arrays or tensors of the batch
    error     the exception that the engine raised
    expected  a text that says what the model takes
    """
    shapes = ", ".join(str(tuple(array.shape)) for array in batch) or "none"
    return LabError(
        f"{engine}: the model refuses a batch of shape {shapes}.",
        expected=expected,
        found=" ".join(str(error).split())[:300],
        fix="give what is expected, and tokens below the size of its vocabulary; for another "
        "batch or image size, "
        "export the model with that side open",
    )


def as_written(path: str | Path, *, level: str = "none", all_outputs: bool = False) -> Callable:
    """Return a function that runs an ONNX file on torch tensors.

    The function takes a tensor for each input, and returns the first output as a tensor.

    path         path of the file; it is checked first
    level        one of `LEVELS`: how far ONNX Runtime may rewrite the graph. With "none" the graph
                 is run as in `session_as_written`
    all_outputs  True: the function returns a list of all outputs
    """
    import torch

    checked(path)
    opened = session_as_written(path) if level == "none" else session(path, level)

    def run(*batch):
        arrays = tuple(tensor.cpu().numpy() for tensor in batch)
        outputs = [torch.from_numpy(array) for array in answers(opened, arrays)]
        return outputs if all_outputs else outputs[0]

    return run
