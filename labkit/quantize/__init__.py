"""Quantize networks: with NumPy (`integer_grid`), or by a library that writes an ONNX file.

    # INT8 by Q/DQ nodes, with ranges observed on training images
    static("net.onnx", "net-int8.onnx", train)
    # INT8 with ranges found in each call: no data is needed
    dynamic("net.onnx", "net-int8.onnx")
    # weights of 4 bits, with one scale for each group of weights; computes in float
    weight_only("net.onnx", "net-w4.onnx", bits=4)
    # INT8 on the grids that a network was trained on
    from_fake_quantized(network, example, "net-qat.onnx")
    # float16 for everything that is not in INT8
    to_fp16("net-int8.onnx", "net-int8-fp16.onnx")

    # which layers lose accuracy
    sensitivity(model, histograms, images)
    # INT8 with as few layers in float as the limit on the loss allows
    automatic("net.onnx", "net-int8.onnx", calibration, held_out)

The file itself says where each number is rounded. So every engine that reads ONNX should compute
the same, and one engine can verify another.
"""
# ruff: noqa: F401 (what is offered here)

from labkit.quantize.activation_ranges import METHODS, observe, ranges
from labkit.quantize.automatic import automatic, float_nodes
from labkit.quantize.calibration import Calibration, LazyBatches
from labkit.quantize.dynamic import dynamic, weight_only
from labkit.quantize.fake_quantized import from_fake_quantized
from labkit.quantize.floats import to_fp16
from labkit.quantize.fp8 import to_fp8
from labkit.quantize.images import images_for
from labkit.quantize.limit import Limit
from labkit.quantize.outliers import outliers_apart
from labkit.quantize.preparation import prepared_for_quantizer
from labkit.quantize.ptq import RECIPES, in_int8, static
from labkit.quantize.quantize_file import comparison_images, quantize_file
from labkit.quantize.sensitivity import all_outputs, logits, sensitivity
from labkit.quantize.smoothing import smoothed
