"""Write ONNX files. Each file is first a draft, which a separate process opens and runs as a test.

Some valid files cannot be opened by any engine. Others crash the process that opens them. A draft
that fails in this way never gets the name of the file. A copy of another file, such as one in INT8,
must also answer like the original.

Cost    about a second per file
Limits  the test uses made-up inputs. Use `labkit.engines.fidelity` to see what a copy loses on real
        data
"""

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from labkit.device.child import ChildEnded, run_in_child
from labkit.errors import LabError
from labkit.export.gate import made_here, parsed
from labkit.export.inputs import varied_inputs
from labkit.export.runtime import answers, notes, session, session_as_written, without_kernel
from labkit.export.variation import likeness
from labkit.files import draft

# The least SQNR of a copy on made-up inputs, in its weakest channel: the error may be half as large
# as what varies. A copy that answers one constant has 0 dB. Coarse copies are in use: a language
# model in INT8, its ranges taken from each call, has 10 dB.
MIN_DB = 6.0
SECONDS = 60  # limit of computing for one file, and as much again for each GB of it


def write_model(
    model: onnx.ModelProto, path: str | Path, *, original: Any = None, **metadata: str
) -> Path:
    """Write a ModelProto with `write_checked`. Returns the path.

    original  as in `write_checked`
    metadata  texts to add to the metadata of the model
    """
    onnx.helper.set_model_props(model, notes(model) | metadata)
    return write_checked(partial(onnx.save, model), path, original=original)


def write_checked(save: Callable, path: str | Path, *, original: Any = None) -> Path:
    """Write an ONNX file if it proves to be sound. Returns its path.

    If it is not sound, nothing is written, and an earlier file of that name stays as it was.

    save      function (path) that writes the file, perhaps with its weights in a second file beside
              it
    path      path of the file
    original  path of an ONNX file that the new file must answer like. None or a ModelProto: the
              answers are not compared
    Raises    LabError: the file cannot be opened, crashes the process that opens it, or answers
              differently from the original
    """
    path = Path(path)
    earlier = _weights_beside(path)
    with draft(path) as temporary:
        save(temporary)
        compared_with = original if isinstance(original, (str, Path)) else None
        _require_sound(temporary, compared_with)
        current = {file.name for file in _weights_beside(temporary)}
    for file in earlier:
        if file.name not in current:
            file.unlink(missing_ok=True)
    return made_here(path)


def _weights_beside(path):
    """Return the paths of the files that hold the weights of an ONNX file.

    Only files in the same folder whose names begin with that of the file are returned, such as
    model.onnx.data for model.onnx. Exporters write such names.
    """
    try:
        model = parsed(path)
    except LabError:
        return []
    locations = {entry.value for tensor in model.graph.initializer for entry in tensor.external_data
                 if entry.key == "location"}  # fmt: skip
    return [path.with_name(name) for name in sorted(locations) if name.startswith(f"{path.name}.")]


def _require_sound(path, original):
    """Raise a LabError unless a separate process can open and run a file.

    path      path of the file, alone in its folder with its weights
    original  path of an ONNX file that the file must also answer like; None: nothing is compared
    """
    gigabytes = sum(file.stat().st_size for file in path.parent.iterdir()) / 1e9
    seconds = int(SECONDS * (1 + gigabytes))
    try:
        reason = run_in_child(
            partial(problem_of, path.resolve(), original and Path(original).resolve()), seconds
        )
    except ChildEnded as error:
        reason = f"the process that opened it {error.found}"
    except LabError as error:
        reason = " ".join(filter(None, [error.what, error.found]))
    if reason:
        fix = "export the model in another way, or another opset"
        if original:
            fix = (
                "use the file that it was made from, or make another one: in another precision, "
                "or in INT8 with layers left in float (--keep)"
            )
        raise LabError(
            f"{path.name} is not written: it would be of no use.",
            expected="a file that ONNX Runtime opens and calls, and that answers "
            "like what it was made from",
            found=reason,
            fix=fix,
        )


def problem_of(path: Path, original: Path | None = None) -> str | None:
    """Return a text that says what is wrong with an ONNX file, or None.

    The file is opened and called on made-up inputs twice: as it is written, and as ONNX Runtime
    rewrites it. These files pass:
    - a file for which ONNX Runtime has no kernels on this machine
    - a file without an original that fails on the made-up inputs, because the inputs may not suit
      it

    original  path of the file that this file must answer like. If the original does not take the
              made-up inputs, nothing is compared
    Raises    LabError: the file breaks a rule of `inspection.inspect`
    """
    from labkit.export.inspection import inspect

    inspect(path)
    batches = _made_up(path)
    expected = None
    if original is not None:
        with suppress(LabError):  # it does not take these inputs
            expected = _outputs(original, batches, "none")
    for level in ("none", "all"):
        try:
            outputs = _outputs(path, batches, level)
        except LabError as error:
            if expected and not without_kernel(error):
                return error.found
            continue
        if level == "none" and expected:
            problem = _difference(expected, outputs)
            if problem:
                return problem
    return None


def _made_up(path):
    """Return made-up inputs of a file: a list of {input name: array}, one for each call.

    The list is empty where no inputs can be made up.
    """
    try:
        return varied_inputs(onnx.load(path, load_external_data=False))
    except LabError:
        return []


def _outputs(path, batches, level):
    """Run a file on several batches. Returns the outputs: {name: array (N, ...)}.

    The file is opened in any case; without batches the result is {}.

    batches  a list of {input name: array}, one for each call
    level    one of `runtime.LEVELS`
    Raises   LabError: the file does not take the batches
    """
    if level == "none":
        opened = session_as_written(path, threads=1)
    else:
        opened = session(path, level, threads=1)
    if not batches:
        return {}
    calls = [answers(opened, batch) for batch in batches]
    outputs = {}
    for index, value in enumerate(opened.get_outputs()):
        outputs[value.name] = _joined([arrays[index] for arrays in calls])
    return outputs


def _joined(arrays):
    """Join the answers of several calls along the first axis. Returns one array.

    If the items of two calls differ in shape, all numbers are joined into a single row (1, n).
    """
    arrays = [np.atleast_1d(array) for array in arrays]
    if len({array.shape[1:] for array in arrays}) == 1:
        return np.concatenate(arrays)
    return np.concatenate([array.ravel() for array in arrays])[None]


def _difference(expected, outputs):
    """Return a text that says which output of a copy differs, and by how much; None if none does.

    expected, outputs  {name: array} of the original and of the copy
    """
    for name, reference in expected.items():
        if name not in outputs or outputs[name].shape != reference.shape:
            return f"the output {name} has another name or shape than before"
        alike = likeness(reference, outputs[name])
        if not alike.lowest_db >= MIN_DB:
            return (
                f"on made-up inputs the output {name} answers something else: {alike}, {MIN_DB:g} "
                "dB are needed"
            )
    return None
