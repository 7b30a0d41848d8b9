"""Other tools for INT8 after training, as `quantization.py` asks them: (file, where to, batches) -> seconds.

Each has its own defaults for a file that TensorRT or OpenVINO shall read, and the same calibration data. Each runs in a
process of its own: modelopt changes ONNX Runtime's quantizer for all that comes after it. NNCF is installed by
`pip install -e '.[peers]'`; it is no part of the course.
"""

import contextlib
import importlib.util
import io
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import numpy as np
import onnx

from labkit.quantize import prepared
from labkit.quantize._quiet import quiet


def onnxruntime(path, dst, batches):
    """`onnxruntime.quantization.quantize_static`: Q/DQ nodes, min-max, a grid for each channel of the weights."""
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

    model = prepared(path)
    name = model.graph.input[0].name

    class Reader(CalibrationDataReader):
        def __init__(self):
            self.batches = iter(batches)

        def get_next(self):
            batch = next(self.batches, None)
            return None if batch is None else {name: batch}

    with quiet():
        types = {"activation_type": QuantType.QUInt8, "weight_type": QuantType.QInt8}
        quantize_static(model, dst, Reader(), quant_format=QuantFormat.QDQ, per_channel=True, **types)


def modelopt(path, dst, batches):
    """NVIDIA's `modelopt.onnx.quantization.quantize`, calibrated on the CPU, everything else in float32."""
    from modelopt.onnx.quantization import quantize

    name = onnx.load(path, load_external_data=False).graph.input[0].name
    with quiet():
        settings = {"quantize_mode": "int8", "calibration_method": "max", "calibration_eps": ["cpu"]}
        data = {name: np.concatenate(batches)}
        quantize(str(path), calibration_data=data, high_precision_dtype="fp32", output_path=str(dst), **settings)


def nncf(path, dst, batches):
    """NNCF's post-training quantization of an ONNX model."""
    import nncf as library

    model = onnx.load(path)
    name = model.graph.input[0].name
    singles = [example[None] for batch in batches for example in batch]  # it takes the mean of their ranges
    dataset = library.Dataset(singles, lambda example: {name: example})
    with quiet(), contextlib.redirect_stdout(io.StringIO()):
        onnx.save(library.quantize(model, dataset), dst)


KNOWN = {"onnxruntime": onnxruntime, "modelopt": modelopt, "nncf": nncf}
PEERS = tuple(name for name in KNOWN if importlib.util.find_spec(name))


def run(peer, path, dst, data):
    """Let one of `PEERS` quantize a file with a `Calibration`: the seconds it takes, without its start."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as apart:
        return apart.submit(_timed, peer, path, dst, list(data.batches)).result()


def _timed(peer, path, dst, batches):
    importlib.import_module(peer)
    begin = time.perf_counter()
    KNOWN[peer](path, dst, batches)
    return time.perf_counter() - begin
