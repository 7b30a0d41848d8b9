"""The last section of lesson 00 on networks of several kinds, without labkit; and its interval
of the points lost.
"""

import ast
import random
import sys
import time
from importlib.abc import Loader, MetaPathFinder
from importlib.util import spec_from_loader
from types import ModuleType

import nbformat
import numpy as np
import onnx
import onnxruntime
import pandas as pd
import pytest
import torch
import torchvision
from onnxruntime.quantization import CalibrationDataReader, QuantType, quantize_static
from onnxruntime.quantization.shape_inference import quant_pre_process
from torch import nn
from yours import Encoder, cells_of_yours

from labkit.files import root
from labkit.lesson.exercises import l00_start_here as answers
from labkit.lesson.verdicts import weigh
from labkit.measure.stats import bootstrap_paired
from labkit.measure.turns import Times

# Functions that the reader takes home.
TAKEN = (
    "in_pytorch",
    "to_onnx",
    "in_onnxruntime",
    "Calibration",
    "to_int8",
    "measured",
    "widened",
    "points_lost",
)
WORDS = ("filled", "not filled", "not clear")


def sources():
    cells = nbformat.read(root() / "notebooks" / "00_start_here.ipynb", as_version=4).cells
    return [(cell.cell_type, cell.source) for cell in cells]


def taken_home():
    """{name: the source of a function or class that stands on the page}"""
    code = [source for kind, source in sources() if kind == "code"]
    functions = {
        node.name: ast.unparse(node)
        for source in code
        for node in ast.parse(source).body
        if isinstance(node, (ast.FunctionDef, ast.ClassDef))
    }
    return {name: functions[name] for name in TAKEN}


def space(**names):
    """What the page has bound when its last section begins."""
    bound = {
        "np": np,
        "pd": pd,
        "torch": torch,
        "onnxruntime": onnxruntime,
        "random": random,
        "time": time,
    }
    bound |= {
        tool.__name__: tool
        for tool in (CalibrationDataReader, QuantType, quantize_static, quant_pre_process)
    }
    bound |= {
        name: getattr(answers, name)
        for name in ("predictions", "median_latency", "changed_answers", "verdict")
    }
    bound |= names
    for source in taken_home().values():
        exec(source, bound)
    return bound


class Files(MetaPathFinder, Loader):
    """Finds `mine`, and in it what a list holds for its next import."""

    def __init__(self, contents):
        self.contents = contents

    def find_spec(self, name, path=None, target=None):
        return spec_from_loader(name, self) if name == "mine" else None

    def exec_module(self, module):
        module.network, module.inputs, module.labels = self.contents.pop(0)


@pytest.fixture
def imported_in_turn(monkeypatch):
    """Return a list: each import of `mine` that reads the file takes its network, inputs and
    labels from it.
    """
    contents = []
    monkeypatch.setattr(sys, "meta_path", [Files(contents), *sys.meta_path])
    monkeypatch.setitem(sys.modules, "mine", ModuleType("mine"))  # what an earlier import left
    monkeypatch.setitem(sys.modules, "labkit", None)  # an import of it fails
    return contents


NETWORKS = {
    "a ShuffleNet of torchvision": (
        lambda: torchvision.models.shufflenet_v2_x0_5(num_classes=10),
        lambda: torch.randn(64, 3, 32, 32),
    ),
    "a transformer encoder": (
        lambda: nn.Sequential(Encoder(), nn.Linear(16, 5)),
        lambda: torch.randint(50, (80, 12)),
    ),
    "batch norms behind a pooling": (
        lambda: nn.Sequential(
            nn.Conv2d(1, 8, 3),
            nn.MaxPool2d(2),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(72, 4),
        ),
        lambda: torch.randn(120, 1, 8, 8),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", NETWORKS)
def test_yours_ends_in_three_verdicts_without_labkit_and_without_a_warning(
    kind, imported_in_turn, tmp_path, capsys, caplog
):
    network, inputs = NETWORKS[kind]
    torch.manual_seed(0)
    my_network, my_inputs = network().eval(), inputs()
    with torch.inference_mode():
        my_labels = my_network(my_inputs).argmax(1).clone()
    imported_in_turn.append((my_network, my_inputs, my_labels))
    bound = space(
        folder=tmp_path, board=pd.DataFrame(columns=["accuracy (%)", "time (ms)", "size (MB)"])
    )
    for source in cells_of_yours("00_start_here"):
        exec(source, bound)
    printed = capsys.readouterr().out.splitlines()
    itself, worth, changes, shipped, *demands = printed[-7:]
    assert itself.startswith("PyTorch against itself: ")
    assert [line.rpartition(": ")[2] in WORDS for line in (worth, *demands)] == [True] * 4
    assert f"of {len(my_inputs) - len(my_inputs) // 4} answers changed by INT8" in changes
    assert shipped == f"{bound['ship']} against PyTorch:"
    assert bound["ship"] == ("INT8" if worth.endswith(": filled") else "ONNX Runtime")
    yours = bound["yours"]
    assert list(yours.index) == ["PyTorch", "ONNX Runtime", "INT8"]
    assert yours["accuracy (%)"]["ONNX Runtime"] == 100, "the same weights, the same answers"
    assert len(bound["my_changed"]) == len(my_inputs) - len(my_inputs) // 4, "the others judge"
    assert "out-of-range" not in caplog.text


def test_yours_reads_the_file_anew_and_leaves_the_names_of_the_lesson_alone(imported_in_turn):
    first, second = nn.Linear(4, 2).eval(), nn.Linear(4, 3).eval()
    images, labels = torch.zeros(80, 4), torch.zeros(80, dtype=torch.long)
    imported_in_turn += [(first, images, labels), (second, images, labels)]
    bound = space()
    for network in (first, second):
        exec(cells_of_yours("00_start_here")[0], bound)
        assert bound["my_network"] is network
    lesson = [source for kind, source in sources() if kind == "code"]
    end = next(number for number, source in enumerate(lesson) if source.startswith("import sys"))
    of_loops = {"_", "name", "program", "milliseconds"}
    assert names_bound(lesson[:end]) & names_bound(cells_of_yours("00_start_here")) <= of_loops


def names_bound(cells):
    """The names that the cells bind outside their functions and classes."""
    return {
        node.id
        for source in cells
        for statement in ast.parse(source).body
        if not isinstance(statement, (ast.FunctionDef, ast.ClassDef))
        for node in ast.walk(statement)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }


def test_a_gain_is_widened_by_the_larger_error_of_the_same_code_on_both_sides():
    widened = space()["widened"]
    assert widened((6, 8), (0.9, 1.25)) == pytest.approx((4.8, 10))
    assert widened((6, 8), (0.8, 1.1)) == pytest.approx((4.8, 10))
    assert widened((6, 8), (1, 1)) == (6, 8)


def test_the_lesson_widens_as_the_course_does():
    seconds = np.random.default_rng(0).lognormal(sigma=0.2, size=(20, 3)) * [5, 1, 5]
    times = Times(("PyTorch", "INT8"), seconds)
    course = weigh(times["INT8"])
    assert space()["widened"](times["INT8"], again=times.null) == pytest.approx(
        (course.low, course.high)
    )


def test_the_interval_of_the_points_lost_holds_the_truth_19_times_of_20_and_is_that_of_the_course():
    points_lost = space()["points_lost"]
    rng = np.random.default_rng(0)
    for count, lost_share, won_share in (
        (900, 0.006, 0.004),
        (2500, 0.003, 0.003),
        (64, 0.02, 0.0),
        (400, 0.3, 0.1),
    ):
        truth = 100 * (lost_share - won_share)
        held = 0
        for _ in range(1000):
            kind = rng.random(count)
            lost, won = kind < lost_share, kind > 1 - won_share
            low, high = points_lost(lost, won)
            held += low <= truth <= high
        assert held >= 930
        before, after = lost, won  # right before, right after; the others are wrong both times
        course = 100 * bootstrap_paired(after, before)
        assert np.allclose([low, high], list(course), atol=0.15 * (course.high - course.low) + 1e-9)


def test_no_changed_answer_does_not_prove_that_none_will_change():
    nothing = np.zeros(500, bool)
    low, high = space()["points_lost"](nothing, nothing)
    assert low == -high
    assert 0.3 < high < 0.6  # three of 500 could be missed, as the rule of three says


@pytest.mark.parametrize(
    ("milliseconds", "file"), [((1.0, 0.5), "INT8"), ((1.0, 0.95), "ONNX Runtime")]
)
def test_int8_is_shipped_only_where_it_is_worth_its_changed_answers(milliseconds, file):
    fp32, int8 = milliseconds
    rounds = {
        "PyTorch": [3.0] * 11,
        "the same again": [3.0] * 11,
        "ONNX Runtime": [fp32] * 11,
        "INT8": [int8] * 11,
    }
    scores = {
        "PyTorch": [0, 1, 1],
        "the same again": [0, 1, 1],
        "ONNX Runtime": [0, 1, 1],
        "INT8": [0, 1, 0],
    }
    bound = space(
        turns=pd.DataFrame(rounds),
        null=(1.0, 1.0),
        ends=[0.1, 0.9],
        few=1,
        my_images=np.zeros((4, 1), np.float32),
        my_labels=np.array([0, 0, 1, 1]),
        my_calls={
            name: lambda images, classes=classes: np.eye(2)[classes]
            for name, classes in scores.items()
        },
        yours=pd.DataFrame({"size (MB)": {"PyTorch": 6.0, "ONNX Runtime": 6.0, "INT8": 1.5}}),
    )
    *_, worth, shipped = cells_of_yours("00_start_here")
    exec(worth, bound)
    exec(shipped, bound)
    assert bound["ship"] == file
    assert bound["my_size"] == (4 if file == "INT8" else 1)
    assert bound["my_lost"].sum() == (1 if file == "INT8" else 0), (
        "what is shipped is judged against PyTorch"
    )
    assert bound["examples"].tolist() == [3], (
        "the inputs whose answers INT8 changes, numbered from the first of all"
    )


def test_the_file_of_the_page_stores_the_grid_of_the_exercise_and_weights_from_minus_64_to_64(
    tmp_path,
):
    torch.manual_seed(0)
    network = nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Conv2d(4, 4, 3), nn.Flatten(), nn.Linear(64, 3)
    ).eval()
    images = torch.randn(20, 1, 8, 8).numpy()
    bound = space()
    bound["to_onnx"](network, images, tmp_path / "fp32.onnx")
    bound["to_int8"](tmp_path / "fp32.onnx", tmp_path / "int8.onnx", images)
    graph = onnx.load(tmp_path / "int8.onnx").graph
    stored = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in graph.initializer}
    second = [node.output[0] for node in graph.node if node.op_type == "Conv"][1]
    with torch.inference_mode():
        scale, zero_point = answers.calibrated_grid(network[:3](torch.from_numpy(images)).numpy())
    assert stored[f"{second}_scale"] == pytest.approx(scale, rel=1e-5)
    assert stored[f"{second}_zero_point"] == zero_point
    weights = [
        numbers for numbers in stored.values() if numbers.dtype == np.int8 and numbers.ndim > 1
    ]
    assert [np.abs(numbers.astype(int)).max() for numbers in weights] == [64, 64, 64]
