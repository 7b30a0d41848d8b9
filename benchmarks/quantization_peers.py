"""Other tools for INT8 after training, as `quantization.py` asks them: (file, where to, `Calibration`) -> a file.

Each has its own defaults for a file that TensorRT or OpenVINO shall read, and the same calibration data.
"""

import importlib.util

import numpy as np
import onnx

from labkit.quantize import prepared
from labkit.quantize._quiet import quiet


def onnxruntime(path, dst, data):
    """`onnxruntime.quantization.quantize_static`: Q/DQ nodes, min-max, a grid for each channel of the weights."""
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

    model = prepared(path)
    name = model.graph.input[0].name

    class Reader(CalibrationDataReader):
        def __init__(self):
            self.batches = iter(data.batches)

        def get_next(self):
            batch = next(self.batches, None)
            return None if batch is None else {name: batch}

    with quiet():
        types = {"activation_type": QuantType.QUInt8, "weight_type": QuantType.QInt8}
        quantize_static(model, dst, Reader(), quant_format=QuantFormat.QDQ, per_channel=True, **types)
    return dst


def modelopt(path, dst, data):
    """NVIDIA's `modelopt.onnx.quantization.quantize`, calibrated on the CPU, everything else in float32."""
    from modelopt.onnx.quantization import quantize

    name = onnx.load(path, load_external_data=False).graph.input[0].name
    with quiet():
        settings = {"quantize_mode": "int8", "calibration_method": "max", "calibration_eps": ["cpu"]}
        data = {name: np.concatenate(list(data.batches))}
        quantize(str(path), calibration_data=data, high_precision_dtype="fp32", output_path=str(dst), **settings)
    return dst


def nncf(path, dst, data):
    """NNCF's post-training quantization of an ONNX model."""
    import nncf as library

    model = onnx.load(path)
    name = model.graph.input[0].name
    dataset = library.Dataset(list(data.batches), lambda batch: {name: batch})
    onnx.save(library.quantize(model, dataset), dst)
    return dst


INSTALLED = {"onnxruntime": onnxruntime, "modelopt": modelopt, "nncf": nncf}
PEERS = {name: run for name, run in INSTALLED.items() if importlib.util.find_spec(name)}
