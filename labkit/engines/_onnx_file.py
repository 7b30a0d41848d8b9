"""Make an ONNX file of a model, for an engine that runs ONNX files only."""

import copy
import tempfile
from contextlib import contextmanager
from pathlib import Path

from labkit import export
from labkit.engines.eager import DTYPES
from labkit.errors import LabError, Unavailable


@contextmanager
def as_onnx(model, example, precision, from_fp32=()):
    """Yield the path of an ONNX file of a model, for the precision in which the engine is to run.

    A torch module is exported to a temporary file, which is deleted when the context ends. A file
    is yielded as it is.

    model      a torch module, or the path of an ONNX file, which is checked first
    example    a batch for the module, a tensor
    precision  one of `engines.PRECISIONS`
    from_fp32  precisions in which the engine can run a file of fp32: for these the file holds fp32.
               For any other precision the file must hold that precision itself
    Raises     LabError: the file holds another precision; Unavailable: a module shall run in int8
               or fp8
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
