"""The file that an engine of ONNX graphs is given, whatever the caller had."""

import copy
import tempfile
from contextlib import contextmanager
from pathlib import Path

from labkit import export
from labkit.engines.eager import DTYPES
from labkit.errors import LabError, Unavailable


@contextmanager
def as_onnx(model, example, precision, from_fp32=()):
    """Yield the path of an ONNX file with the precision written into it; one exported for this is
    deleted at the end.

    model      a torch module, or the path of an ONNX file (checked before anything reads it)
    precision  a module is exported in it; a file must hold it
    from_fp32  precisions that the engine computes a file of fp32 in
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
