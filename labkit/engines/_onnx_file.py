"""Make the ONNX file that an engine of ONNX graphs is given, from a torch module or a file."""

import copy
import tempfile
from contextlib import contextmanager
from pathlib import Path

from labkit import export
from labkit.engines.eager import DTYPES
from labkit.errors import LabError, Unavailable


@contextmanager
def as_onnx(model, example, precision, from_fp32=()):
    """Yield the path of an ONNX file of a model, in the precision that the engine is to run.

    A torch module is exported to a temporary file, which is deleted at the end.

    model      a torch module, or the path of an ONNX file (checked before anything reads it)
    precision  one of `engines.PRECISIONS`. A module is exported in this precision; a file must hold
               it
    from_fp32  the precisions in which the engine itself can run a file of fp32: the file stays in
               fp32
    Raises     LabError for a file of another precision; Unavailable for a module in int8 or fp8
    """
    if isinstance(model, (str, Path)):
        file_precision = export.precision_of(export.checked(model))
        if file_precision != precision and (file_precision != "fp32" or precision not in from_fp32):
            raise LabError(
                f"{Path(model).name} does not hold {precision}.",
                expected=precision,
                found=file_precision,
                fix=f"ask for precision {file_precision}, or make another file with "
                "`labkit quantize`",
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
    if precision != "fp32" and precision not in from_fp32:
        model = copy.deepcopy(model).to(DTYPES[precision])
        if example.is_floating_point():
            example = example.to(DTYPES[precision])
    with tempfile.TemporaryDirectory() as folder:
        yield export.to_onnx(model, example, Path(folder) / "model.onnx")
