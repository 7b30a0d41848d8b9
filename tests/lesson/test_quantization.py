"""The lesson on quantization: its functions keep what they promise, Yours ends in a verdict."""

import ast

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from onnx import numpy_helper
from onnxruntime.quantization import CalibrationDataReader, QuantType, quantize_static
from onnxruntime.quantization.shape_inference import quant_pre_process
from pages import statements_of
from torch import nn
from torch.export import Dim
from yours import Encoder, TwoOutputs, run_yours

from labkit.data import load
from labkit.lesson.exercises import l13_quantization as reference
from labkit.lesson.support import load_support
from labkit.measure import Interval
from labkit.models.trained import trained

study = load_support("quantization")
SOLVED = ("points_lost", "scale_zero_point", "quantize", "closest_scale", "stretch")


def page(folder):
    """Return what the page binds: its functions and classes, with the answers to its exercises."""
    bound = {
        "np": np,
        "onnx": onnx,
        "onnxruntime": onnxruntime,
        "torch": torch,
        "nn": nn,
        "Dim": Dim,
    }
    bound |= {
        "CalibrationDataReader": CalibrationDataReader,
        "QuantType": QuantType,
        "folder": folder,
    }
    bound |= {"quantize_static": quantize_static, "quant_pre_process": quant_pre_process}
    bound |= {"numpy_helper": numpy_helper, "Interval": Interval}
    for statement in statements_of("13_quantization"):
        if isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
            exec(ast.unparse(statement), bound)
    bound |= {name: getattr(reference, name) for name in SOLVED}
    return bound


# --- the reader's functions ---


def test_four_images_of_which_one_is_lost_cost_25_points_with_the_interval_of_the_text():
    lost = reference.points_lost(np.array([1, 1, 1, 1], bool), np.array([0, 1, 1, 1], bool))
    assert lost == pytest.approx((25 - 49, 25, 25 + 49))


def test_the_range_of_the_text_has_the_scale_and_zero_point_that_stand_there():
    scale, zero_point = reference.scale_zero_point(-1.0, 3.0)
    assert scale == pytest.approx(0.0157, abs=5e-5)
    assert zero_point == 64
    integers = reference.quantize(np.array([-1.004, 0.0, 1.0, 2.996]), scale, zero_point)
    assert integers.tolist() == [0, 64, 128, 255]


def test_the_row_of_the_text_is_stretched_by_18_over_14():
    stretched = reference.stretch(np.array([[4.0, -1, 1]]), np.array([[3.0, -1, 1]]))
    assert stretched[0] == pytest.approx(np.array([3, -1, 1]) * 18 / 14)


def test_rounded_puts_weights_on_seven_values_with_three_bits(tmp_path):
    values = page(tmp_path)["rounded"](np.linspace(-2, 2, 401), 0.5, 3)
    assert np.unique(values).tolist() == [-1.5, -1, -0.5, 0, 0.5, 1, 1.5]


@pytest.mark.slow
def test_the_grid_of_the_input_by_hand_is_the_one_that_the_quantizer_writes(tmp_path):
    bound = page(tmp_path)
    images = np.random.default_rng(0).normal(size=(64, 1, 28, 28)).astype(np.float32)
    network = nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 26 * 26, 3)
    ).eval()
    source = bound["to_onnx"](network, torch.from_numpy(images[:2]), tmp_path / "float.onnx")
    path = bound["quantized"](source, "int8", images)
    stored = {
        tensor.name: numpy_helper.to_array(tensor) for tensor in onnx.load(path).graph.initializer
    }
    scale, zero_point = reference.scale_zero_point(float(images.min()), float(images.max()))
    assert stored["images_scale"] == pytest.approx(scale, rel=1e-5)
    assert stored["images_zero_point"] == zero_point


# --- one convolution ---


@pytest.mark.parametrize(
    ("zero", "fused"), [(np.uint8(0), True), (np.int8(-128), True), (np.uint8(10), False)]
)
def test_the_relu_goes_where_0_is_the_lowest_integer(zero, fused, tmp_path):
    onnx.checker.check_model(study.one_convolution(zero))
    kernels = study.kernels(study.one_convolution(zero), tmp_path / "rewritten.onnx")
    assert (kernels["QLinearConv"] == 1) == fused
    assert (
        study.kernels(study.one_convolution(zero, relu=False), tmp_path / "rewritten.onnx")[
            "QLinearConv"
        ]
        == 1
    )


# --- weights in the file ---


@pytest.mark.slow
def test_weights_of_one_layer_shrunk_by_half_cost_points_and_stretching_brings_them_back(tmp_path):
    bound = page(tmp_path)
    images = next(iter(load("fashion-mnist", "test").batches(100)))[0].numpy()
    network, _ = trained("vgg-medium")
    bound["fp32"] = bound["to_onnx"](network, torch.from_numpy(images[:2]), tmp_path / "fp32.onnx")
    tensors = {t.name: numpy_helper.to_array(t) for t in onnx.load(bound["fp32"]).graph.initializer}
    rows = {name: w.reshape(len(w), -1) for name, w in tensors.items() if w.ndim > 1}
    answers = bound["in_onnxruntime"](bound["fp32"])(images).argmax(1)
    bound |= {"stored": tensors, "images": images, "labels": answers}
    assert bound["with_weights"](rows).all()
    halves = {
        name: np.sign(w) * np.abs(w).mean(axis=1, keepdims=True) / 4 for name, w in rows.items()
    }
    stretched = {name: reference.stretch(rows[name], half) for name, half in halves.items()}
    for name, half in stretched.items():
        assert (rows[name] * half).sum() == pytest.approx((rows[name] ** 2).sum(), rel=1e-3)
    assert not bound["with_weights"](halves).all()


# --- the board ---


def test_what_was_not_measured_is_a_dash():
    table = study.table({"new": {"points lost": Interval(0, 2, 9, 1)}})
    assert table.loc["new"].tolist() == ["–", "1.00 (0.00 to 2.00)", "–"]


def test_decibels_stand_on_the_board_where_they_were_measured():
    table = study.table({"new": {"MB": 1.0, "SQNR (dB)": 31.26}})
    assert table.loc["new", "SQNR (dB)"] == "31.3"


def test_nncf_stands_beside_the_board_as_recorded_elsewhere():
    table = study.beside_nncf({"own": {"MB": 1.0}}, ["own"])
    assert "recorded" in table.index[-1]
    assert "AVX2" in table.index[-1]


# --- Yours ---


class Images(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 8, 3, stride=2), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten()
        )
        self.head = nn.Linear(8 * 15 * 15, 5)

    def forward(self, x):
        return self.head(self.body(x))


def resnet():
    return pytest.importorskip("torchvision").models.resnet18(num_classes=5)


KINDS = {
    "images": (Images, lambda: torch.randn(80, 3, 32, 32)),
    "a ResNet": (resnet, lambda: torch.randn(80, 3, 32, 32)),
    "a transformer encoder": (Encoder, lambda: torch.randint(50, (80, 12))),
    "two outputs": (TwoOutputs, lambda: torch.randn(80, 12)),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("regression", [False, True])
def test_the_last_section_ends_in_a_verdict_on_networks_of_several_kinds(
    kind, regression, tmp_path, monkeypatch, capsys
):
    torch.manual_seed(0)
    network, inputs = KINDS[kind]
    mine = {"network": network().eval(), "inputs": inputs()}
    mine["labels"] = torch.randn(80, 2) if regression else torch.randint(3, (80,))
    bound = run_yours("13_quantization", page(tmp_path), mine, monkeypatch)
    printed = capsys.readouterr().out
    assert printed.splitlines()[-1].endswith(
        ("Ship INT8.", "Keep the float file, unless size decides.")
    )
    assert np.isfinite([bound["low"], bound["lost"], bound["high"], bound["slowest"]]).all()
    assert bound["changed"] < 30
    kinds = {node.op_type for node in onnx.load(bound["mine_int8"]).graph.node}
    assert {"QuantizeLinear", "DequantizeLinear"} <= kinds
