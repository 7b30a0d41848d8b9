"""The networks of the course as engines: each precision that the ONNX file asks for is what the
engine computes in.
"""

from functools import cache

import pytest
import torch

from labkit import models, quantize
from labkit.data import load
from labkit.engines.tensorrt import build, compared

pytest.importorskip("tensorrt_rtx_bindings", exc_type=ImportError)
# One network of each family, the small ones; `benchmarks/deploy.py --only tensorrt` builds all
# networks of the course.
NETWORKS = ("cnn-small", "vgg-small", "convnext-mini", "encoder-small")
PRECISIONS = ("fp32", "fp16", "int8", "int8+fp16")

# The warnings are of the quantizer and the converter, about themselves.
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]


def calibration(name):
    if name.startswith("encoder"):
        tokens = [models.example(name, 32, seed=seed).numpy() for seed in range(2)]
        return quantize.Calibration(tuple(tokens), "random tokens: only the graph matters here")
    return load("fashion-mnist", "train", limit=64)


@pytest.fixture(scope="module")
def files(exported, tmp_path_factory):
    """(network, precision) -> an ONNX file that holds this precision."""
    folder = tmp_path_factory.mktemp("onnx")

    @cache
    def file(name, precision):
        path = folder / f"{name}-{precision}.onnx"
        if precision == "fp32":
            return exported(name)
        if precision == "int8":
            return quantize.static(file(name, "fp32"), path, calibration(name))
        return quantize.to_fp16(file(name, {"fp16": "fp32", "int8+fp16": "int8"}[precision]), path)

    return file


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("name", NETWORKS)
def test_every_heavy_node_is_computed_in_the_precision_the_file_asks_for(name, precision, files):
    built = build(files(name, precision))
    table = compared(built.source.model, built.kernels)
    wanted = precision.partition("+")[0]
    assert list(table["actual"]) == list(table["requested"])
    assert set(table["requested"]) == {wanted}
    convolutions = sum(
        isinstance(module, torch.nn.Conv2d) for module in models.build(name)[0].modules()
    )
    assert (table["operator"] == "Conv").sum() == convolutions
    assert len(built.plan) > built.memory["weights"]


def test_int8_weights_take_little_more_than_a_quarter_of_the_memory(files):
    fp32, int8 = (
        build(files("convnext-mini", precision)).memory["weights"] for precision in ("fp32", "int8")
    )
    assert 3 < fp32 / int8 <= 4  # the scales and what stays float weigh a little
