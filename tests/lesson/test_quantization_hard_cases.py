"""The lesson on hard cases of quantization: its file is the network that was trained, and Yours
on other networks.
"""

from types import SimpleNamespace

import nbformat
import onnx
import pytest
import torch
from onnx import numpy_helper
from torch import nn
from torchvision.models.resnet import BasicBlock, ResNet
from yours import Encoder, TwoOutputs, cells_of_yours, run_yours

from labkit import quantize
from labkit.files import root
from labkit.lesson.exercises import l14_quantization_hard_cases as answers
from labkit.lesson.support import load_support

LESSON = "14_quantization_hard_cases"
DEFINE = (
    *("import copy", "def layers_of", "def one_grid", "WHOLE_ROW", "class Grid", "def of_weights"),
    *("STEPS =", "def train(", "def to_file", "RULES ="),
)
ENDS = ("\n\n\n@torch.no_grad()\ndef right", "\n\n\npredict(", "\n\n\nboard[", "\n\n\nto_file(")


def page(folder):
    """The functions of the lesson's page, with the reference answers, as a dictionary of names."""
    bound = {
        name: getattr(answers, name)
        for name in ("noise_by_layer", "outliers", "in_groups", "straight_through")
    }
    bound |= {
        "lab": SimpleNamespace(folder=folder),
        "seed": 0,
        "study": load_support("quantization_hard_cases"),
    }
    cells = nbformat.read(root() / "notebooks" / f"{LESSON}.ipynb", as_version=4).cells
    for source in (cell.source for cell in cells if cell.cell_type == "code"):
        if source.startswith(DEFINE):
            for end in ENDS:
                source = source.split(end)[0]
            exec(source, bound)
    return bound


def small_network():
    torch.manual_seed(2)
    layers = [
        nn.Conv2d(2, 6, 3),
        nn.ReLU(),
        nn.Conv2d(6, 6, 3, groups=6),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(96, 4),
    ]
    return nn.Sequential(*layers).eval().requires_grad_(False)


@pytest.fixture
def bound(tmp_path):
    torch.set_num_threads(1)
    return page(tmp_path)


@pytest.mark.slow
def test_the_engine_on_integers_answers_like_the_trained_network_and_stores_its_integers(
    bound, tmp_path
):
    images, labels = torch.randn(256, 2, 8, 8), torch.randint(4, (256,))
    rounded = bound["with_grids"](small_network(), 4, images)
    trained = bound["train"](rounded, images, labels, rate=1e-3)
    assert not torch.equal(
        trained[0].parametrizations.weight.original, rounded[0].parametrizations.weight.original
    )
    by_page, by_labkit = tmp_path / "page.onnx", tmp_path / "labkit.onnx"
    bound["to_file"](trained, images[:4], by_page)
    quantize.from_fake_quantized(trained, images[:4], by_labkit)
    expected = trained(images)
    for path in (by_page, by_labkit):
        for rules in (bound["AS_WRITTEN"], bound["ALL_RULES"]):
            outputs = bound["in_onnxruntime"](path, rules)(images)
            # a number on a border may fall to either side; without the grids the difference is 50
            # times as large
            assert (outputs - expected).abs().mean() < 0.002 * expected.abs().mean()
        integers = [numpy_helper.to_array(tensor) for tensor in onnx.load(path).graph.initializer]
        stored = [array for array in integers if array.dtype == "int8" and array.ndim > 1]
        assert sorted(array.shape for array in stored) == [(4, 96), (6, 1, 3, 3), (6, 2, 3, 3)]
        assert all(abs(array).max() == 7 for array in stored)
    kinds = {node.op_type for node in onnx.load(f"{by_page}.engine").graph.node}
    assert "QLinearConv" in kinds
    assert (small_network()(images) - expected).abs().mean() > 0.02 * expected.abs().mean()


def test_a_grid_of_inputs_holds_zero_and_both_ends(bound):
    for smallest, largest in ((0.0, 6.0), (-0.8, 2.0), (-3.0, 0.0)):
        grid = bound["of_inputs"](smallest, largest)
        assert grid.high - grid.low == 255
        ends = grid(torch.tensor([smallest, 0.0, largest]))
        assert ends[1] == 0
        assert (ends - torch.tensor([smallest, 0.0, largest])).abs().max() <= grid.scale


def test_with_grids_leaves_the_network_as_it_is(bound):
    network = small_network()
    before = [weight.clone() for weight in network.parameters()]
    bound["with_grids"](network, 2, torch.randn(8, 2, 8, 8))
    assert all(map(torch.equal, before, network.parameters()))
    assert not any(layer._forward_pre_hooks for layer in network.modules())


# --- Yours ---

NETWORKS = {
    "a small ResNet": (
        lambda: ResNet(BasicBlock, [1, 1, 1, 1], num_classes=3),
        lambda n: torch.randn(n, 3, 32, 32),
    ),
    "a transformer encoder": (Encoder, lambda n: torch.randint(50, (n, 12))),
    "two outputs": (TwoOutputs, lambda n: torch.randn(n, 12)),
}


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", NETWORKS)
def test_yours_ends_in_one_verdict_and_leaves_the_network_as_it_was(
    kind, bound, monkeypatch, capsys
):
    make, inputs = NETWORKS[kind]
    torch.manual_seed(0)
    network = make().eval()
    mine = {"network": network, "inputs": inputs(160), "labels": torch.randint(3, (160,))}
    before = [weight.clone() for weight in network.parameters()]
    run_yours(LESSON, bound, mine, monkeypatch)
    printed = capsys.readouterr().out
    assert printed.count("Verdict: ") == 1
    assert all(map(torch.equal, before, network.parameters()))
    assert bound["agreement"] > 0.97
    assert bound["my_guilty"] in bound["layers_of"](bound["my_network"])
    names = [
        "4 bits",
        "4 bits after training in float",
        "4 bits, QAT",
        "4 bits, groups of 32",
        "8 bits",
    ]
    assert list(bound["my_points"]) == names  # the cheapest that is fine is the verdict


def test_the_verdict_says_what_the_interval_allows(bound):
    source = next(source for source in cells_of_yours(LESSON) if source.startswith("def verdict"))
    exec(source.split("\n\n\nmy_noise")[0], bound)
    cases = {(0.2, 0.5): "is fine", (3.0, 1.0): "breaks it", (1.0, 0.5): "not clear: more inputs"}
    for (points, error), text in cases.items():
        assert bound["verdict"](points, error) == text
