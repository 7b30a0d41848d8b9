"""Small number formats: by hand (`integer_grid`), and by library, written into the ONNX graph.

    # Q/DQ nodes, with ranges observed on training images
    static("net.onnx", "net-int8.onnx", train)
    # ranges found in each call: no data is needed
    dynamic("net.onnx", "net-int8.onnx")
    # weights in few bits, by groups; computes in float
    weight_only("net.onnx", "net-w4.onnx", bits=4)
    # the grids that a network was trained on
    from_fake_quantized(network, example, "net-qat.onnx")
    # what is not INT8 in half precision
    to_fp16("net-int8.onnx", "net-int8-fp16.onnx")

    # which layers lose accuracy
    sensitivity(model, histograms, images)
    # the fewest layers in float that hold a limit
    automatic("net.onnx", "net-int8.onnx", calibration, held_out)

The precision is stored in the file: every engine that reads ONNX computes in it, and it can be
verified anywhere.
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
