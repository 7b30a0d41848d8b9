"""Partial quantization: the limit by hand, the choice against every other choice, what the file
and the command say.
"""

import json
from itertools import combinations

import numpy as np
import onnx
import pytest
import torch
from typer.testing import CliRunner

from labkit import cli
from labkit.errors import LabError
from labkit.export import to_onnx
from labkit.export.variation import likeness
from labkit.quantize import (
    Calibration,
    Limit,
    automatic,
    float_nodes,
    in_int8,
    logits,
    observe,
    prepared_for_quantizer,
    static,
)
from labkit.quantize.automatic import _choose_float_layers, _reasons_by_layer
from labkit.quantize.sensitivity import multiply_adds_by_node, sensitivity


@pytest.fixture(scope="module")
def parts(train):
    """(what ranges are observed on, what the limit is judged on)"""
    data = Calibration.of(train, count=320)
    return data.first(64), data.after(64)


@pytest.fixture(scope="module")
def noisy(tmp_path_factory, train):
    """A network whose first layer has one channel that drowns all others on a common grid, and
    the data.
    """
    torch.manual_seed(0)
    net = torch.nn.Sequential(
        torch.nn.Conv2d(1, 8, 3, stride=2), torch.nn.Conv2d(8, 8, 3, groups=8), torch.nn.ReLU(),
        torch.nn.Conv2d(8, 16, 3, stride=2), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(400, 10))  # fmt: skip
    net[0].weight.data[0] *= 300
    net[1].weight.data[0] /= 300
    return to_onnx(net, torch.randn(2, 1, 28, 28), tmp_path_factory.mktemp("noisy") / "net.onnx")


def test_the_limit_counts_answers_that_move_and_decibels():
    exact = np.eye(4, dtype=np.float32)
    found = exact.copy()
    found[0] = [0.9, 1.0, 0, 0]  # one answer of four moves
    # Around the mean 1/4, 4 ones and 12 zeros have 4 (3/4)^2 + 12 (1/4)^2 = 3; single channels hold
    # too few numbers.
    assert likeness(exact, found).lowest_db == pytest.approx(10 * np.log10(3 / 1.01))  # 4.73
    held_back = 100 * np.sqrt(0.25 * 0.75 / 4)  # the standard error of one in four
    assert not Limit(points=24.9 + held_back, min_sqnr=0).holds(exact, found)
    assert Limit(points=25 + held_back, min_sqnr=4.7).holds(exact, found)
    assert not Limit(points=25 + held_back, min_sqnr=4.8).holds(exact, found)
    # no classes: decibels alone
    assert Limit(points=0, min_sqnr=4.7).holds(exact[:, None], found[:, None])
    assert not Limit(points=0, min_sqnr=4.7, axis=2).holds(exact[:, None], found[:, None])
    # (N, classes, 2): half of them the same
    pixels, other = (np.stack([each, exact], 2) for each in (exact, found))
    assert Limit(points=12.5 + held_back, min_sqnr=0, axis=1).holds(pixels, other)
    assert not Limit(points=12.4, min_sqnr=0, axis=1).holds(pixels, other)


def test_with_labels_the_limit_counts_right_answers_lost():
    exact = np.eye(4, dtype=np.float32)
    found = exact[[1, 0, 2, 3]]  # two answers of four move: one was right and one becomes right
    labels = np.array([0, 0, 2, 3])
    held_back = 100 * np.std([1, -1, 0, 0]) / 2
    assert Limit(points=held_back, min_sqnr=-5, labels=True).holds(exact, found, labels)
    assert not Limit(points=held_back - 0.1, min_sqnr=-5, labels=True).holds(exact, found, labels)
    assert not Limit(points=50, min_sqnr=-5).holds(exact, found, labels)


def test_of_many_choices_no_worse_ones_pass_than_the_limit_says():
    # a lucky one of a hundred networks that all lose 1 point in truth must not pass a limit of half
    # a point often
    draw = np.random.default_rng(0)
    moved = draw.random((1000, 1024)) < 0.01
    exact = np.tile(np.float32([1, 0]), (1024, 1))
    lucky = [100 * each.mean() <= 0.5 for each in moved]
    held = [
        Limit(min_sqnr=-np.inf).holds(exact, np.where(each[:, None], exact[:, ::-1], exact))
        for each in moved
    ]
    assert np.mean(held) < 0.5 * np.mean(lucky)


@pytest.mark.slow
def test_labels_that_the_network_does_not_answer_with_are_refused(onnx_file, parts, tmp_path):
    batches, labels = parts[1].batches, parts[1].labels
    for wrong, found in (
        (None, "no labels"),
        ((labels + 1) % 10, "% right; always the same answer"),
    ):
        with pytest.raises(LabError) as refused:
            automatic(onnx_file, tmp_path / "q.onnx", parts[0], Calibration(batches, "images", wrong),
                      limit=Limit(labels=True))  # fmt: skip
        assert found in refused.value.found
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_multiply_adds_by_hand(noisy, parts):
    model = prepared_for_quantizer(noisy)
    seen = observe(model, parts[0])
    wanted = [13 * 13 * 8 * 9, 11 * 11 * 8 * 9, 5 * 5 * 16 * 8 * 9, 10 * 400]
    # a batch of 32
    assert list(multiply_adds_by_node(model, seen).values()) == [32 * each for each in wanted]


class RowByRow(torch.nn.Module):
    """Reads an image row by row, in two directions."""

    def __init__(self, *last):
        super().__init__()
        self.rows, self.last = (
            torch.nn.GRU(28, 8, bidirectional=True, batch_first=True),
            torch.nn.Sequential(*last),
        )

    def forward(self, x):
        return self.last(self.rows(x.flatten(1, 2))[0][:, -1])


@pytest.mark.slow
def test_multiply_adds_of_a_gru_and_of_a_transposed_convolution_by_hand(parts, tmp_path):
    model = prepared_for_quantizer(
        to_onnx(RowByRow(torch.nn.Linear(16, 10)), torch.zeros(2, 1, 28, 28), tmp_path / "gru.onnx")
    )
    work = list(multiply_adds_by_node(model, observe(model, parts[0])).values())
    # a batch of 32; steps, directions, gates, width
    assert work == [32 * 28 * 2 * 3 * 8 * (28 + 8), 32 * 16 * 10]
    up = torch.nn.ConvTranspose2d(1, 6, 3, stride=2)
    model = prepared_for_quantizer(to_onnx(up, torch.zeros(2, 1, 28, 28), tmp_path / "up.onnx"))
    assert list(multiply_adds_by_node(model, observe(model, parts[0])).values()) == [
        32 * 28 * 28 * 6 * 9
    ]


@pytest.mark.slow
def test_a_gru_stays_in_float_and_the_file_says_so(parts, tmp_path):
    torch.manual_seed(0)
    net = RowByRow(torch.nn.Linear(16, 10))
    source = to_onnx(net, torch.zeros(2, 1, 28, 28), tmp_path / "net.onnx")
    reasons, share, _ = float_nodes(
        automatic(source, tmp_path / "q.onnx", *parts, limit=Limit(points=100, min_sqnr=0))
    )
    assert [reason.partition(";")[0] for reason in reasons.values()] == [
        "GRU: no recipe puts it into integers"
    ]
    assert share == pytest.approx(160 / (160 + 28 * 2 * 3 * 8 * (28 + 8)), abs=1e-4)


def test_a_network_of_a_gru_alone_is_refused_by_the_name_of_the_operator(parts, tmp_path):
    source = to_onnx(RowByRow(), torch.zeros(2, 1, 28, 28), tmp_path / "net.onnx")
    for write in (
        lambda to: automatic(source, to, *parts),
        lambda to: static(source, to, parts[0]),
    ):
        with pytest.raises(LabError, match="There is nothing to quantize") as refused:
            write(tmp_path / "q.onnx")
        assert "GRU" in refused.value.found
    assert [path.name for path in tmp_path.iterdir()] == ["net.onnx"]


def test_the_choice_keeps_the_fewest_multiply_adds_of_all_choices_that_hold(noisy, parts):
    model, exact = prepared_for_quantizer(noisy), logits(noisy, parts[1])
    seen = observe(model, parts[0])
    work = multiply_adds_by_node(model, seen)

    def holds(nodes):
        return Limit(points=100, min_sqnr=35).holds(
            exact, logits(in_int8(model, seen, in_float=nodes), parts[1])
        )

    assert not holds(())
    found = _choose_float_layers(model, holds, sensitivity(model, seen, parts[0].first(64)))
    every = [each for count in range(5) for each in combinations(work, count) if holds(each)]
    assert sum(map(work.get, found)) == min(sum(map(work.get, each)) for each in every)
    assert 0 < len(found) < 4


def test_the_file_holds_the_limit_and_says_what_stays_in_float_and_why(noisy, parts, tmp_path):
    limit = Limit(points=100, min_sqnr=35)
    path = automatic(noisy, tmp_path / "q.onnx", *parts, limit=limit)
    assert limit.holds(logits(noisy, parts[1]), logits(path, parts[1]))
    reasons, share, _ = float_nodes(path)
    assert reasons
    assert all("of the noise, with" in reason for reason in reasons.values())
    assert 0 < share < 1
    facts = {entry.key: entry.value for entry in onnx.load(path).metadata_props}
    assert json.loads(facts["kept_in_float"]) == reasons
    assert facts["quantized"] == "int8, recipe tensorrt, ranges by minmax"


def test_smoothing_takes_the_outlier_out_of_the_depthwise_convolution_and_no_layer_stays(
    noisy, parts, tmp_path
):
    model, exact = prepared_for_quantizer(noisy), logits(noisy, parts[1])
    plain = likeness(exact, logits(in_int8(model, observe(model, parts[0])), parts[1])).lowest_db
    limit = Limit(points=100, min_sqnr=plain + 3)
    path = automatic(noisy, tmp_path / "q.onnx", *parts, limit=limit)
    assert float_nodes(path)[:2] == ({}, 1.0)
    assert {entry.key: entry.value for entry in onnx.load(path).metadata_props}[
        "smoothed"
    ].endswith("dB better")
    assert limit.holds(exact, logits(path, parts[1]))


@pytest.mark.slow
def test_nothing_is_kept_where_eight_bits_are_enough(onnx_file, parts, tmp_path):
    path = automatic(onnx_file, tmp_path / "q.onnx", *parts, limit=Limit(points=5))
    assert float_nodes(path)[:2] == ({}, 1.0)


@pytest.mark.slow
def test_what_stands_between_layers_stays_in_float_where_layers_alone_are_not_enough(
    parts, tmp_path
):
    class Residual(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.two = (
                torch.nn.Conv2d(1, 8, 3, stride=2),
                torch.nn.Conv2d(8, 8, 3, padding=1),
            )
            self.last = torch.nn.Linear(8 * 13 * 13, 10)

        def forward(self, x):
            x = self.one(x)
            return self.last((x + self.two(x)).flatten(1))

    torch.manual_seed(0)
    source = to_onnx(Residual(), torch.randn(2, 1, 28, 28), tmp_path / "net.onnx")
    model, exact = prepared_for_quantizer(source), logits(source, parts[1])
    seen = observe(model, parts[0])

    def alone(layer):
        """The decibels with this layer in INT8, and what stands between layers."""
        others = [
            node.name
            for node in model.graph.node
            if node.op_type in ("Conv", "Gemm") and node.name != layer
        ]
        int8 = in_int8(model, seen, recipe="onnxruntime", in_float=others)
        return likeness(exact, logits(int8, parts[1])).lowest_db

    limit = Limit(points=100, min_sqnr=alone(None) + 1)
    path = automatic(source, tmp_path / "q.onnx", *parts, limit=limit, recipe="onnxruntime")
    assert limit.holds(exact, logits(path, parts[1]))
    assert "between two layers, and it multiplies nothing" in float_nodes(path)[0].values()


@pytest.mark.slow
def test_a_limit_that_no_layer_bears_is_refused(onnx_file, parts, tmp_path):
    with pytest.raises(LabError, match=r"bears INT8 within the limit(?s:.)*every Conv, Gemm would"):
        automatic(onnx_file, tmp_path / "q.onnx", *parts, limit=Limit(points=0, min_sqnr=200))
    assert not list(tmp_path.iterdir())


def test_each_layer_of_the_scan_has_its_reason(onnx_file, parts):
    model = prepared_for_quantizer(onnx_file)
    table = sensitivity(model, observe(model, parts[0]), parts[0])
    assert table["share_of_work"].sum() == pytest.approx(1)
    reasons = list(_reasons_by_layer(prepared_for_quantizer(onnx_file), table).values())
    assert len(reasons) == len(table)
    assert reasons[-1].startswith("Gemm: alone it makes")


def test_a_depthwise_convolution_is_called_one(noisy, parts):
    model = prepared_for_quantizer(noisy)
    table = sensitivity(model, observe(model, parts[0]), parts[0])
    assert [
        "grouped" in reason
        for reason in _reasons_by_layer(prepared_for_quantizer(noisy), table).values()
    ] == [
        False,
        True,
        False,
        False,
    ]


@pytest.mark.slow
def test_the_command_prints_the_layers_that_stay_with_their_reasons(noisy, tmp_path):
    words = [
        "quantize",
        noisy,
        tmp_path / "q.onnx",
        "--data",
        "fashion-mnist",
        "--count",
        64,
        "--keep",
        "auto",
    ]
    done = CliRunner().invoke(cli.app, list(map(str, [*words, "--loss", 100, "--min-sqnr", 35])))
    assert done.exit_code == 0, done.output
    assert "of the multiply-adds in INT8; " in done.output
    for node, reason in float_nodes(tmp_path / "q.onnx")[0].items():
        assert f"    {node}: {reason}" in done.output


def test_auto_and_names_together_are_refused(onnx_file, tmp_path):
    words = [
        "quantize",
        onnx_file,
        tmp_path / "q.onnx",
        "--data",
        "fashion-mnist",
        "--keep",
        "auto",
        "--keep",
        "node_conv2d",
    ]
    refused = CliRunner().invoke(cli.app, list(map(str, words))).exception
    assert "auto chooses the layers by itself" in str(refused)
