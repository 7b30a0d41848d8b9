"""Small number formats: by hand (`numbers`), and by library, written into the ONNX graph.

    static("net.onnx", "net-int8.onnx", train)          # Q/DQ nodes, ranges observed on training images
    dynamic("net.onnx", "net-int8.onnx")                # ranges found in each call: no data is needed
    weight_only("net.onnx", "net-w4.onnx", bits=4)      # weights in few bits, by groups; computes in float
    to_fp16("net-int8.onnx", "net-int8-fp16.onnx")      # what is not INT8 in half precision

    sensitivity(model, seen, images)                    # which layers lose accuracy
    automatic("net.onnx", "net-int8.onnx", seen, other) # the fewest layers in float that hold a limit

Precision lives in the file: every engine that reads ONNX then
computes in it, and it can be verified anywhere.
"""
# ruff: noqa: F401 (what is offered here)

from labkit.quantize.automatic import automatic, float_nodes
from labkit.quantize.calibration import Again, Calibration
from labkit.quantize.dynamic import dynamic, weight_only
from labkit.quantize.floats import to_fp16
from labkit.quantize.fp8 import to_fp8
from labkit.quantize.limit import Limit
from labkit.quantize.named import by_name, images_for, to_compare
from labkit.quantize.observed import METHODS, observe, ranges
from labkit.quantize.outliers import outliers_apart
from labkit.quantize.ptq import RECIPES, in_int8, prepared, static
from labkit.quantize.sensitivity import all_outputs, logits, sensitivity
from labkit.quantize.smoothing import smoothed
