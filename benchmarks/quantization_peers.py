"""Other tools for INT8 after training, as `quantization.py` asks them: (file, where to, batches).

Each has its own defaults for a file that TensorRT or OpenVINO shall read, and the same calibration
data. Each runs in a process of its own, so that nothing it changes reaches the next. NNCF is
installed by
`pip install -e '.[peers]'`; it is no part of the course.
"""

import contextlib
import importlib.util
import io
import warnings
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import onnx

from labkit.quantize import prepared_for_quantizer


def onnxruntime(path, dst, batches):
    """`onnxruntime.quantization.quantize_static`: Q/DQ nodes, min-max, a grid for each channel
    of the weights.
    """
    from onnxruntime.quantization import (
        CalibrationDataReader,
        QuantFormat,
        QuantType,
        quantize_static,
    )

    model = prepared_for_quantizer(path)
    name = model.graph.input[0].name

    class Reader(CalibrationDataReader):
        def __init__(self):
            self.batches = iter(batches)

        def get_next(self):
            batch = next(self.batches, None)
            return batch if batch is None or isinstance(batch, dict) else {name: batch}

    with warnings.catch_warnings(action="ignore"):
        types = {"activation_type": QuantType.QUInt8, "weight_type": QuantType.QInt8}
        quantize_static(
            model, dst, Reader(), quant_format=QuantFormat.QDQ, per_channel=True, **types
        )


def nncf(path, dst, batches):
    """NNCF's post-training quantization of an ONNX model."""
    import nncf as library

    model = onnx.load(path)
    name = model.graph.input[0].name
    # it takes the mean of their ranges
    singles = [example[None] for batch in batches for example in batch]
    dataset = library.Dataset(singles, lambda example: {name: example})
    with contextlib.redirect_stdout(io.StringIO()):
        onnx.save(library.quantize(model, dataset), dst)


KNOWN = {"onnxruntime": onnxruntime, "nncf": nncf}
PEERS = tuple(name for name in KNOWN if importlib.util.find_spec(name))


def run(peer, path, dst, data):
    """Let one of `PEERS` quantize a file with a `Calibration`."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as apart:
        apart.submit(KNOWN[peer], path, dst, list(data.batches)).result()
