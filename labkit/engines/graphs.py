"""What the engines that run ONNX share: a file that holds the wanted precision, whatever they were given."""

import copy
import tempfile
from contextlib import contextmanager
from pathlib import Path

from labkit import export
from labkit.engines.eager import DTYPES
from labkit.errors import LabError, Unavailable


@contextmanager
def as_onnx(model, example, precision):
    """Yield the path of an ONNX file with the precision written into it; one exported for this is deleted at the end.

    model      a torch module, or the path of an ONNX file (checked before anything reads it)
    precision  a module is exported in it; a file must hold it
    """
    if isinstance(model, (str, Path)):
        held = export.precision_of(export.checked(model))
        if held != precision:
            raise LabError(
                f"{Path(model).name} does not hold {precision}.",
                expected=precision,
                found=held,
                fix=f"ask for precision {held}, or make another file with `labkit quantize`",
            )
        yield Path(model)
        return
    if precision not in DTYPES:
        raise Unavailable(
            f"A torch module cannot be served in {precision}.",
            expected="an ONNX file with QuantizeLinear and DequantizeLinear nodes",
            found=type(model).__name__,
            fix="export it (`labkit export`), then quantize the file (`labkit quantize`)",
        )
    dtype = DTYPES[precision]
    if precision != "fp32":
        model = copy.deepcopy(model).to(dtype)
    batch = example.to(dtype) if example.is_floating_point() else example
    with tempfile.TemporaryDirectory() as folder:
        yield export.to_onnx(model, batch, Path(folder) / "model.onnx")
