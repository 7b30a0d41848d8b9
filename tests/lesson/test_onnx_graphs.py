"""The lesson on ONNX graphs: its changes keep answers, its claims can fail, its pictures show
what they say.
"""

import ast
import importlib
from collections import Counter
from functools import partial

import numpy as np
import onnx
import onnxruntime
import pages
import pandas as pd
import pytest
import torch
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from torch import nn
from torch.export import Dim

from labkit.lesson.exercises import l12_onnx_graphs as reference
from labkit.lesson.support import load_support
from labkit.measure.stats import Interval
from labkit.measure.turns import Times

study = load_support("onnx_graphs")
SOLVED = ("parity", "by_shape", "is_constant", "fold_batch_norm", "fuse_padding")
STATEMENTS = pages.statements_of("12_onnx_graphs")
judged = partial(pages.judged, STATEMENTS)


def page(**names):
    """What the page has bound: its functions and levels, with the answers to its exercises."""
    bound = {
        "np": np,
        "onnx": onnx,
        "onnxruntime": onnxruntime,
        "torch": torch,
        "nn": nn,
        "pd": pd,
        "Dim": Dim,
    }
    bound |= {
        "partial": partial,
        "Counter": Counter,
        "numpy_helper": numpy_helper,
        "study": study,
        "seed": 0,
    }
    bound["ReferenceEvaluator"] = ReferenceEvaluator
    for statement in STATEMENTS:
        settings = isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) in (
            *("LEVELS", "(AS_WRITTEN, ALL_RULES)", "BATCH", "ANY_SIZE"),
        )
        if settings or isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
            exec(ast.unparse(statement), bound)
    bound |= {name: getattr(reference, name) for name in SOLVED}
    bound |= names
    return bound


class Mobile(nn.Module):
    """Padding by a layer of its own, convolution without bias, batch norm, a clip, twice; then a
    linear layer.
    """

    def __init__(self):
        super().__init__()
        layers = []
        for before, width in ((3, 8), (8, 8)):
            norm = nn.BatchNorm2d(width, eps=1e-3)
            nn.init.uniform_(norm.running_var, 0.01, 2)
            nn.init.normal_(norm.running_mean)
            layers += [
                nn.ZeroPad2d((0, 1, 0, 1)),
                nn.Conv2d(before, width, 3, stride=2, bias=False),
                norm,
                nn.ReLU6(),
            ]
        self.body = nn.Sequential(*layers)
        self.head = nn.Linear(8, 12)

    def forward(self, x):
        return self.head(self.body(x).mean((2, 3)))


@pytest.fixture(scope="module")
def mobile(tmp_path_factory):
    """(a network in eval mode, its traced file, photos), written by the function of the page."""
    torch.manual_seed(0)
    network = Mobile().eval()
    path = tmp_path_factory.mktemp("files") / "traced.onnx"
    photos = study.photos(32, count=2)
    page()["to_onnx"](network, torch.from_numpy(photos), path, optimize=False)
    return network, path, photos


def written(mobile, tmp_path, **names):
    """The names of the page after its four changes of the traced file."""
    _, traced, photos = mobile
    bound = page(
        traced=traced, photos=photos, folder=tmp_path, files={"traced": traced}, errors={}, **names
    )
    for statement in STATEMENTS:
        if isinstance(statement, ast.Expr) and ast.unparse(statement).startswith("write("):
            exec(ast.unparse(statement), bound)
    return bound


def kinds_of(path):
    return Counter(node.op_type for node in onnx.load(path).graph.node)


@pytest.mark.slow
def test_the_changes_of_the_page_leave_what_they_say_and_keep_the_answers(mobile, tmp_path):
    bound = written(mobile, tmp_path)
    kinds = [kinds_of(path) for path in bound["files"].values()]
    traced, textbook, folded, norms, padded, computed = kinds
    assert traced["CastLike"] == textbook["CastLike"] > 0
    assert (
        textbook["Constant"]
        == folded["CastLike"]
        == folded["Expand"]
        == norms["BatchNormalization"]
        == 0
    )
    assert folded["BatchNormalization"] == folded["Pad"] == norms["Pad"] == 2
    assert padded["Pad"] == 0
    assert padded["Conv"] == 2
    assert computed - padded == {"CastLike": 2}
    assert max(bound["errors"].values()) < 1e-5
    network, _, photos = mobile
    program = bound["in_onnxruntime"](bound["files"]["padding fused"])
    assert reference.parity(bound["in_pytorch"](network), program, [photos]) < 1e-5


@pytest.mark.slow
def test_the_runtime_stops_where_the_textbook_does_and_makes_one_graph_of_what_yours_opens(
    mobile, tmp_path
):
    bound = written(mobile, tmp_path)
    graphs = {name: bound["graph_of_engine"](path) for name, path in bound["files"].items()}
    assert graphs["traced"] == graphs["folded, textbook rule"]
    assert graphs["traced"]["Cast"] > 0
    assert graphs["folded, your rule"] == graphs["batch norm folded"] == graphs["padding fused"]
    assert graphs["padding fused"].total() < graphs["traced"].total()


@pytest.mark.slow
def test_a_computed_bias_takes_the_layout_and_leaves_the_fused_nodes_as_the_rule_switched_off_does(
    mobile, tmp_path
):
    bound = written(mobile, tmp_path)
    last, graph_of_engine = bound["files"]["padding fused"], bound["graph_of_engine"]
    if not graph_of_engine(last)["nchwc Conv"]:
        pytest.skip("ONNX Runtime has no layout of its own for this CPU")
    for graph in (
        graph_of_engine(last, ["NchwcTransformer"]),
        graph_of_engine(bound["files"]["biases computed"]),
    ):
        assert graph["nchwc Conv"] == 0
        assert graph["microsoft FusedConv"] == graph_of_engine(last)["nchwc Conv"]


def model_of(nodes, arrays):
    """A model of nodes from "images" (n, 2, 6, 6) to "scores", with stored arrays."""
    ends = [("images", ["n", 2, 6, 6]), ("scores", ["n", 2, "height", "width"])]
    values = [
        helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape) for name, shape in ends
    ]
    weights = [numpy_helper.from_array(np.float32(array), name) for name, array in arrays.items()]
    graph = helper.make_graph(nodes, "norms", values[:1], values[1:], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def conv(source, result, *bias):
    return helper.make_node("Conv", [source, "weight", *bias], [result])


def norm(source, result, **settings):
    names = ["gamma", "beta", "mean", "var"]
    return helper.make_node("BatchNormalization", [source, *names], [result], **settings)


def node(kind, *names):
    return helper.make_node(kind, names[:-1], names[-1:])


NORMS = {  # {case: (nodes, batch norms that stay)}
    "before the convolution": ([norm("images", "a"), conv("a", "scores", "bias")], 1),
    "behind an activation": ([conv("images", "a"), node("Relu", "a", "b"), norm("b", "scores")], 1),
    "convolution read twice": (
        [conv("images", "a"), norm("a", "b"), node("Add", "a", "b", "scores")],
        1,
    ),
    "convolution without bias": ([conv("images", "a"), norm("a", "scores", epsilon=0.1)], 0),
    "epsilon not written": ([conv("images", "a", "bias"), norm("a", "scores")], 0),
    "between two convolutions": (
        [conv("images", "a", "bias"), norm("a", "b"), conv("b", "scores")],
        0,
    ),
}


@pytest.mark.parametrize("case", NORMS)
def test_a_batch_norm_is_folded_only_into_a_convolution_that_works_for_it_alone(case, tmp_path):
    rng, bound = np.random.default_rng(0), page()
    arrays = {name: rng.uniform(0.2, 2, 2) for name in ("bias", "gamma", "beta", "mean", "var")}
    arrays["weight"] = rng.standard_normal((2, 2, 3, 3))
    nodes, left = NORMS[case]
    before, after = tmp_path / "before.onnx", tmp_path / "after.onnx"
    onnx.save(model_of(nodes, arrays), before)
    folded = bound["fold_batch_norms"](onnx.load(before))
    onnx.checker.check_model(folded, full_check=True)
    onnx.save(folded, after)
    assert kinds_of(after)["BatchNormalization"] == left
    images = rng.standard_normal((2, 2, 6, 6)).astype(np.float32)
    programs = [bound["in_onnxruntime"](path, bound["AS_WRITTEN"]) for path in (before, after)]
    assert reference.parity(*programs, [images]) < 1e-5


# --- claims: each is seen to fail with a fault ---


@pytest.mark.slow
def test_a_fold_that_forgets_epsilon_breaks_the_claim_that_answers_stay(mobile, tmp_path):
    def forgets_epsilon(*numbers):
        return reference.fold_batch_norm(*numbers[:-1], 0.0)

    assert judged("answers-stay", written(mobile, tmp_path)) == "holds"
    faulty = written(mobile, tmp_path, fold_batch_norm=forgets_epsilon)
    assert judged("answers-stay", faulty) == "fails"


@pytest.mark.slow
def test_a_file_of_eval_mode_breaks_the_claim_that_dropout_draws(tmp_path):
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(64, 64), nn.Dropout(0.2), nn.Linear(64, 20))
    image, bound = torch.randn(1, 64), page()
    for training, verdict in ((True, "holds"), (False, "fails")):
        path = tmp_path / f"{training}.onnx"
        with pytest.warns() if training else pytest.MonkeyPatch.context():
            bound["to_onnx"](network.train(training), torch.randn(2, 64), path)
        run = bound["in_onnxruntime"](path, bound["AS_WRITTEN"])
        (first,), (second,) = run(image.numpy()), run(image.numpy())
        drawn = np.abs(first - second).max() / np.abs(first).max()
        assert judged("dropout-draws", {"drawn": drawn}) == verdict


def times_of(**seconds):
    """`Times` in which every call of a file takes so many seconds; "traced" is the first."""
    names = {"traced": "traced", "textbook": "folded, textbook rule", "yours": "folded, your rule"}
    columns = {f"{names[key]}, all rules": value for key, value in seconds.items()}
    return Times(tuple(columns), np.tile([*columns.values(), seconds["traced"]], (12, 1)))


@pytest.mark.parametrize(
    ("seconds", "textbook", "yours"),
    [
        ({"traced": 3.0, "textbook": 2.9, "yours": 1.0}, "holds", "holds"),
        ({"traced": 3.0, "textbook": 1.0, "yours": 1.0}, "fails", "holds"),
        ({"traced": 3.0, "textbook": 2.9, "yours": 2.8}, "holds", "fails"),
    ],
)
def test_the_claims_on_times_fail_where_the_textbook_opens_or_the_rule_does_not(
    seconds, textbook, yours
):
    times = times_of(**seconds)
    opened = study.times_faster(times, "folded, your rule, all rules", "traced, all rules")
    bound = {"times": times, "study": study, "opened": opened}
    assert judged("textbook-opens-nothing", bound) == textbook
    assert judged("folding-opens-the-way", bound) == yours


def test_every_claim_of_the_lesson_is_seen_to_fail_here():
    claimed = {
        text.split("'")[1] for text in map(ast.unparse, STATEMENTS) if text.startswith("claim(")
    }
    assert claimed == {
        "dropout-draws",
        "answers-stay",
        "textbook-opens-nothing",
        "folding-opens-the-way",
    }


# --- pictures and files of the lesson ---


def test_photos_are_in_one_piece_in_the_range_of_the_training():
    photos = study.photos(32, count=3)
    assert photos.shape == (3, 3, 32, 32)
    assert photos.dtype == np.float32
    assert photos.flags["C_CONTIGUOUS"]
    assert -1 <= photos.min() < -0.5 < 0.5 < photos.max() <= 1.01


@pytest.fixture
def pictures(monkeypatch):
    shown = []
    monkeypatch.setattr(study, "display", shown.append)
    return shown


@pytest.mark.slow
def test_a_module_is_drawn_with_its_own_operators_and_no_others(mobile, pictures):
    study.draw_module(mobile[1], "body")
    texts = [text.get_text() for text in pictures[0].axes[0].texts]
    assert texts.count("Conv") == 2
    assert "Gemm" not in texts
    assert "8 x 3 x 3 x 3" in texts


@pytest.mark.slow
def test_the_operator_chart_counts_nodes_and_shares_of_time(mobile, pictures):
    study.operator_chart(mobile[1], calls=2)
    left, right = pictures[0].axes
    kinds = [text.get_text() for text in left.get_yticklabels()]
    nodes = dict(zip(kinds, (bar.get_width() for bar in left.patches), strict=True))
    assert nodes["Conv"] == 2
    assert sum(bar.get_width() for bar in right.patches) == pytest.approx(100)


def faulty_model():
    """Pad by a stored constant, convolution, batch norm, and a linear layer of 9 classes."""
    rng = np.random.default_rng(0)
    arrays = {
        "weight": rng.random((2, 3, 3, 3)),
        "bias": rng.random(2),
        "last": rng.random((9, 2)),
        "zero": 0.0,
    }
    arrays |= dict.fromkeys(("gamma", "beta", "mean", "var"), np.ones(2))
    pads = helper.make_tensor("value", onnx.TensorProto.INT64, [8], [0, 0, 0, 0, 0, 0, 1, 1])
    norm = ["convolved", "gamma", "beta", "mean", "var"]
    nodes = [
        helper.make_node("Constant", [], ["pads"], value=pads),
        helper.make_node("Pad", ["images", "pads", "zero"], ["padded"]),
        helper.make_node("Conv", ["padded", "weight", "bias"], ["convolved"], pads=[0, 0, 0, 0]),
        helper.make_node("BatchNormalization", norm, ["normal"], epsilon=1e-3),
        helper.make_node("GlobalAveragePool", ["normal"], ["pooled"]),
        helper.make_node("Flatten", ["pooled"], ["flat"]),
        helper.make_node("Gemm", ["flat", "last"], ["scores"], transB=1),
    ]
    ends = [("images", ["n", 3, 6, 6]), ("scores", ["n", 9])]
    values = [
        helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape) for name, shape in ends
    ]
    weights = [numpy_helper.from_array(np.float32(array), name) for name, array in arrays.items()]
    graph = helper.make_graph(nodes, "small", values[:1], values[1:], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


@pytest.mark.parametrize("fault", study.FAULTS)
def test_a_fault_changes_answers_and_nothing_else(fault, tmp_path):
    path, bound = tmp_path / "traced.onnx", page()
    onnx.save(faulty_model(), path)
    images = np.random.default_rng(1).random((4, 3, 6, 6), np.float32)
    programs = [bound["in_onnxruntime"](file) for file in (path, study.with_fault(path, fault))]
    assert 1e-5 < reference.parity(*programs, [images]) < np.inf
    if fault == "one class is lost":
        (scores,) = programs[1](images)
        assert (scores[:, 7] == 0).all()
        assert (scores[:, 6] != 0).all()


def test_the_board_has_a_row_for_each_file_and_both_intervals(pictures):
    board = {"traced": (30, Interval(0.9, 1.1, 12, 1.0), Interval(1.0, 1.2, 12, 1.1))}
    board["folded"] = 10, Interval(1.0, 1.2, 12, 1.1), Interval(3.0, 3.4, 12, 3.2)
    figure = study.draw_board(board)
    left, right = figure.axes
    assert [bar.get_width() for bar in left.patches] == [30, 10]
    assert [text.get_text() for text in right.texts] == ["1.00", "1.10", "1.10", "3.20"]


def test_times_faster_divides_the_seconds_of_two_calls():
    faster = study.times_faster(
        times_of(traced=3.0, yours=1.5), "folded, your rule, all rules", "traced, all rules"
    )
    assert faster.median == pytest.approx(2)


def test_exercises_of_the_page_are_those_of_the_module():
    module = importlib.import_module("labkit.lesson.exercises.l12_onnx_graphs")
    assert tuple(task.name for task in module.EXERCISES) == SOLVED
