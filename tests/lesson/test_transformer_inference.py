"""The lesson on transformer inference: its functions keep what they say, its claims can fail,
its tables add up.
"""

import ast
import copy
import time
from types import SimpleNamespace

import numpy as np
import onnx
import onnxruntime
import pages
import pandas as pd
import pytest
import torch
from onnxruntime.quantization import QuantType, quantize_dynamic
from scipy.stats import binomtest
from torch import nn

from labkit.lesson.exercises import l18_transformer_inference as reference
from labkit.lesson.support import load_support
from labkit.measure import Interval
from labkit.measure.stats import bootstrap_paired
from labkit.models.encoder import Encoder
from labkit.quantize import weight_only
from labkit.text import encoded

study = load_support("transformer_inference")
SOLVED = ("nearest", "layer_inputs", "own_grid", "smooth", "block_linear")
STATEMENTS = pages.statements_of("18_transformer_inference")


def page(**names):
    """What the page has bound: its functions, with the answers to its exercises."""
    bound = {
        "np": np,
        "onnx": onnx,
        "pd": pd,
        "torch": torch,
        "nn": nn,
        "copy": copy,
        "binomtest": binomtest,
    }
    bound |= {
        "onnxruntime": onnxruntime,
        "quantize_dynamic": quantize_dynamic,
        "QuantType": QuantType,
    }
    bound |= {"time": time, "Interval": Interval, "encoded": encoded, "study": study}
    bound |= {name: getattr(reference, name) for name in SOLVED}
    for statement in STATEMENTS:
        is_definition = isinstance(statement, (ast.FunctionDef, ast.ClassDef))
        if is_definition and statement.name not in SOLVED:
            exec(ast.unparse(statement), bound)
    bound.update(names)
    return bound


def small_encoder():
    torch.manual_seed(0)
    return Encoder(24, 2, heads=2, vocabulary=50, classes=None).eval()


TOKENS = list(torch.randint(1, 50, (12, 6), generator=torch.Generator().manual_seed(0)))


# --- functions of the page ---


def test_what_changed_is_counted_with_the_interval_of_a_binomial():
    before = torch.tensor([1, 2, 3, 0, 1, 2, 3, 0, 1, 2])
    after = torch.tensor([1, 2, 3, 0, 1, 2, 3, 1, 2, 3])
    found = page()["changed"](before, after, answers=lambda outputs: outputs)
    low, high = binomtest(3, 10).proportion_ci()
    assert found.median == pytest.approx(30)
    assert (found.low, found.high) == pytest.approx((100 * low, 100 * high))


def test_a_grid_has_255_steps_and_shares_them_along_the_sides_that_are_named():
    on_grid = page()["on_grid"]
    x = torch.tensor([[0.0, 0.4, 254.0], [-1.0, 0.004, 1.55]])  # from -1 to 254: steps of 1
    assert on_grid(x).tolist() == [[0.0, 0.0, 254.0], [-1.0, 0.0, 2.0]]
    rows = on_grid(x, 1)
    assert rows[0].tolist() == pytest.approx([0.0, 0.0, 254.0])
    assert rows[1].tolist() == pytest.approx([-1.0, 0.0, 1.55], abs=0.005)


def test_a_smoothed_copy_answers_as_the_network_does_and_leaves_it_as_it_was():
    network, batch = small_encoder(), torch.stack(TOKENS)
    before = copy.deepcopy(network.state_dict())
    bound = page()
    inputs = reference.layer_inputs(network, batch)
    smoothed = bound["smoothed_copy"](network, inputs, 0.7)
    with torch.inference_mode():
        assert torch.allclose(smoothed(batch), network(batch), atol=1e-5)
    assert all(torch.equal(weight, before[name]) for name, weight in network.state_dict().items())
    assert (
        sum(isinstance(layer, bound["Divided"]) for layer in smoothed.modules())
        == len(inputs)
        == 12
    )


def test_a_change_that_is_made_by_hooks_counts_and_leaves_no_hook_behind():
    network, bound = small_encoder(), page()
    exact = encoded(TOKENS, network)
    assert torch.equal(bound["rounded"](network, lambda x: x, TOKENS), exact)
    assert not torch.allclose(
        bound["rounded"](network, lambda x: x.round(), TOKENS), exact, atol=1e-3
    )

    def fails(x):
        raise ValueError

    with pytest.raises(ValueError):
        bound["rounded"](network, fails, TOKENS)
    assert torch.equal(encoded(TOKENS, network), exact)


# --- claims: each is seen to fail with a fault ---


def judged(claim_id, bound):
    """The verdict of a claim of the page on what is bound, where the network is the real one."""
    return pages.judged(STATEMENTS, claim_id, bound | {"missing": None})


@pytest.mark.parametrize(("noise", "verdict"), [(0.5, "holds"), (1e-6, "fails")])
def test_a_grid_that_changes_no_neighbour_breaks_the_claim_that_it_breaks_the_search(
    noise, verdict
):
    generator = torch.Generator().manual_seed(0)
    vectors = torch.randn(300, 16, generator=generator)
    loss = page()["changed"](vectors, vectors + noise * torch.randn(300, 16, generator=generator))
    assert judged("per-call-breaks", {"loss": loss}) == verdict


@pytest.mark.parametrize(("outlier", "verdict"), [(0, "holds"), (3, "fails")])
def test_an_outlier_in_another_token_breaks_the_claim_about_the_first_one(outlier, verdict):
    """Vectors are the mean over tokens; the outlier's channel is the same in all texts."""
    x = torch.randn(200, 6, 16, generator=torch.Generator().manual_seed(0))
    x[:, outlier, 0] = 300
    before = reference.nearest(x.mean(1)[:, 1:])

    def lost(rounded):
        return reference.nearest(rounded.mean(1)[:, 1:] + 1e-9) != before

    on_grid = page()["on_grid"]
    shared, alone = lost(on_grid(x)), lost(reference.own_grid(x, 0, on_grid))
    assert shared.float().mean() > 0.1
    assert judged("cls-own-grid", {"study": study, "shared": shared, "alone": alone}) == verdict


@pytest.mark.parametrize(("channel_read", "verdict"), [(7, "holds"), (3, "fails")])
def test_keys_that_read_another_channel_break_the_claim_that_attention_needs_the_outlier(
    channel_read, verdict
):
    layer = small_encoder().layers[0]
    given = torch.randn(300, 4, 24, generator=torch.Generator().manual_seed(0))
    given[:, 0, 7] = 12.0
    with torch.no_grad():
        layer.query.weight.zero_()
        layer.query.bias.fill_(1.0)
        layer.key.weight.mul_(0.1)[:, 7] = 0.0
        layer.key.weight[:, channel_read] = 0.05
    bound = page(layer=layer, given=given, channel=7)
    halved = bound["attention_to_first"](bound["with_less"](7))
    others = [bound["attention_to_first"](bound["with_less"](place)) for place in range(7)]
    assert halved.shape == (300,)
    rivals = [bootstrap_paired(halved, other) for other in others]
    assert judged("attention-needs-it", {"rivals": rivals}) == verdict


@pytest.mark.parametrize(("steps", "verdict"), [(127, "holds"), (255, "fails")])
def test_a_layer_on_other_steps_breaks_the_claim_that_the_engine_computes_it(steps, verdict):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(8, 64)).astype(np.float32)
    weight = rng.integers(-127, 128, (5, 64)).astype(np.int8)
    scales, bias = np.full((5, 2), 0.01, np.float32), np.zeros(5, np.float32)
    theirs = reference.block_linear(x, weight, scales, bias)
    finer = steps / 127  # x on a grid so many times as fine, by rounding before
    block_steps = np.abs(x.reshape(8, 2, 32)).max(2, keepdims=True) / 127 / finer
    on_steps = (np.rint(x.reshape(8, 2, 32) / block_steps) * block_steps).reshape(8, 64)
    yours = on_steps @ (weight * 0.01).T
    bound = {"np": np, "theirs": theirs, "yours": yours.astype(np.float32)}
    (sqnr,) = (text for text in map(ast.unparse, STATEMENTS) if text.startswith("sqnr = "))
    exec(sqnr, bound)
    assert judged("engine-computes-it", bound) == verdict


def test_every_claim_of_the_lesson_is_seen_to_fail_here():
    claimed = {
        text.split("'")[1] for text in map(ast.unparse, STATEMENTS) if text.startswith("claim(")
    }
    assert claimed == {
        "per-call-breaks",
        "cls-own-grid",
        "attention-needs-it",
        "engine-computes-it",
    }


# --- the same texts, two ways ---


def test_what_a_remedy_brings_back_is_judged_on_the_same_texts():
    """Lost 40 of 200; the remedy loses 10 of those, or 10 others: the share is the same, the
    paired interval is not.
    """
    lost = torch.arange(200) < 40
    same, others = torch.arange(200) < 10, torch.arange(200) >= 190
    share = study.brought_back(lost, same)
    assert share.median == pytest.approx(75)
    independent = study.brought_back(lost, others)
    assert independent.median == pytest.approx(75)
    assert share.high - share.low < independent.high - independent.low
    # binomial of the 40
    assert share.low == pytest.approx(75 - 1.96 * 100 * (0.25 * 0.75 / 40) ** 0.5, abs=3)


def test_a_remedy_that_loses_more_brings_back_less_than_nothing_and_few_lost_texts_decide_nothing():
    lost = torch.arange(100) < 10
    assert study.brought_back(lost, torch.arange(100) < 15).median == pytest.approx(-50)
    nothing = study.brought_back(torch.zeros(100, dtype=torch.bool), lost)
    assert (nothing.low, nothing.high) == (-np.inf, np.inf)


def test_the_interval_of_what_is_brought_back_covers_the_truth_in_about_95_of_100_draws():
    rng, covered = np.random.default_rng(0), 0
    for _ in range(100):
        lost = rng.random(300) < 0.15
        # 1 - (0.09 + 0.017) / 0.15
        remedied = np.where(lost, rng.random(300) < 0.6, rng.random(300) < 0.02)
        low, high = study.brought_back(torch.tensor(lost), torch.tensor(remedied))
        covered += low <= 100 * (1 - (0.15 * 0.6 + 0.85 * 0.02) / 0.15) <= high
    assert 88 <= covered <= 100


def test_the_table_of_remedies_leaves_the_reference_without_a_share():
    lost = torch.arange(100) < 10
    table = study.paired({"shared": lost, "remedy": torch.arange(100) < 5}, lost)
    assert list(table["changed, of 100"]) == ["10.0", "5.0"]
    shares = list(table["of the lost ones brought back, %"])
    assert shares[0] == ""
    assert shares[1].startswith("50.0 [")


# --- tables and files of the lesson ---


def test_a_way_that_was_not_raced_keeps_its_row_in_the_last_table():
    board = SimpleNamespace(
        rows={"A": (Interval(0.0, 1.0, 100, 0.5), None), "B": (Interval(5.0, 9.0, 100, 7.0), None)}
    )
    race = SimpleNamespace(ratios={"A": SimpleNamespace(median=2.5)})
    table = study.all_together(board, {1: race}, ["A"])
    assert list(table["allowed"]) == ["yes", "no"]
    assert list(table["times as fast, texts: 1"]) == ["2.50", "–"]


def speed(low, median, high):
    return Interval(low, high, 50, median)


def test_the_fastest_is_named_with_those_whose_interval_reaches_its_own():
    ratios = {
        "A": speed(1.6, 1.9, 2.4),
        "B": speed(1.5, 1.8, 2.2),
        "C": speed(1.1, 1.2, 1.5),
        "D": speed(3, 4, 5),
    }
    # D may not be used
    assert study.without_rival("A", ["A", "B", "C"], ratios) == "A (not distinguishable: B)"
    assert study.without_rival("D", ["A", "B", "C", "D"], ratios) == "D"


@pytest.mark.parametrize(
    ("few", "many", "verdict"),
    [
        ((1.5, 1.8, 2.2), (0.9, 1.0, 1.1), "shrinks"),
        ((1.5, 1.8, 2.2), (1.4, 1.6, 1.7), "less than can be told"),
        ((0.9, 1.0, 1.1), (1.5, 1.8, 2.2), "grows"),
    ],
)
def test_what_an_engine_saves_is_said_only_where_the_gains_of_few_and_many_texts_differ(
    few, many, verdict
):
    races = {
        32: SimpleNamespace(ratios={}),  # the way is not in this race
        8: SimpleNamespace(ratios={"A": speed(*many)}),
        1: SimpleNamespace(ratios={"A": speed(*few)}),
    }
    said = study.gain_by_texts(races, "A")
    assert verdict in said
    assert f"{few[1]:.2f} times with 1 text in a call and {many[1]:.2f} with 8" in said


def test_ways_in_int8_above_the_bound_are_named_with_what_to_use_instead():
    rows = {
        "float": (speed(0, 9, 20), None),
        "INT8, a": (speed(4, 6, 8), None),
        "INT8, b": (speed(1, 2, 5), None),
    }
    board = SimpleNamespace(rows=rows)
    assert study.remedies(board).startswith(
        "Not below 3 of 100: INT8, a (up to 8); INT8, b (up to 5). Use then: float weights"
    )
    rows["INT8, b"] = speed(0.1, 1, 2.9), None
    assert study.remedies(board) == "Not below 3 of 100: INT8, a (up to 8). Use then: INT8, b."
    rows["INT8, a"] = rows["INT8, b"]
    assert study.remedies(board).startswith("Every way in INT8 stays below 3")


def test_the_board_judges_a_file_with_one_text_per_call_and_draws_the_speeds_of_a_race(monkeypatch):
    sizes = []

    def program(tokens):
        sizes.append(len(tokens))
        return network(tokens)

    network = study.in_pytorch(small_encoder())
    monkeypatch.setattr(
        study, "random_batch", lambda count: torch.ones(count, 6, dtype=torch.int64)
    )
    exact = encoded(TOKENS, network)
    board = study.Board(network, TOKENS, exact, page()["changed"], seconds=0.01)
    loss, _ = board.add("A", program)
    assert set(sizes) == {1}
    assert loss.median == 0
    figure = board.show({"A": speed(6.5, 7.5, 8.5), "not on the board": speed(1, 1, 1)})
    assert [text.get_text() for text in figure.axes[1].texts] == ["7.5"]


def test_a_race_reads_two_batches_of_different_texts_of_one_length():
    tokens = [torch.arange(1, length + 1) for length in (16, 9, 16, 12)]
    first, second = study.two_batches(tokens, 2)
    assert first.shape == second.shape == (2, 16)
    assert torch.equal(first[1, :9], tokens[1])
    assert torch.equal(second[0], tokens[2])


def test_the_place_of_an_outlier_is_found_and_the_sharpest_layer_stands_first():
    calm = torch.randn(6, 4, 8, generator=torch.Generator().manual_seed(0)).clamp(-2, 2)
    peaked = calm.clone()
    peaked[:, 1, 5] = -40.0
    peaked[0, 1, 5], peaked[0, 2, 3] = 0.0, 41.0
    table = study.largest_numbers({"calm": calm, "peaked": peaked})
    assert list(table.index) == ["peaked", "calm"]
    row = table.loc["peaked"]
    assert (row["token"], row["channel"], row["texts at this place"]) == (1, 5, 5)
    assert row["largest number"] == 41.0


def test_the_sets_of_texts_share_none_and_have_at_most_16_tokens():
    _, sets, _ = study.load(30, 0, control=40)
    counts = {name: len(texts.texts) for name, texts in sets.items()}
    assert counts == {"course": 30, "manual": 30, "control": 40, "calibration": 64}
    together = [text for texts in sets.values() for text in texts.texts]
    assert len(set(together)) == len(together)
    assert max(len(tokens) for texts in sets.values() for tokens in texts.tokens) <= 16


@pytest.mark.slow
def test_the_engine_computes_the_exercise_on_a_layer_cut_out_of_a_file(tmp_path):
    torch.manual_seed(0)
    network = nn.Sequential(nn.LayerNorm(384), nn.Linear(384, 1536), nn.GELU()).eval()
    torch.onnx.export(
        network, (torch.randn(2, 384),), tmp_path / "plain.onnx", dynamo=True, verbose=False
    )
    blocks = weight_only(
        tmp_path / "plain.onnx", tmp_path / "blocks.onnx", bits=8, block=32, inputs="int8"
    )
    weight, scales, engine = study.one_product(blocks, tmp_path / "product.onnx")
    assert (weight.shape, scales.shape, weight.dtype) == ((1536, 384), (1536, 12), np.int8)
    exact = network[1].weight.detach().numpy()
    assert (
        np.abs(weight * scales.repeat(32, axis=1) - exact).max() <= 1.01 * np.abs(scales).max()
    )  # 128 steps to one side, 127 to the other
    x = np.random.default_rng(0).normal(size=(9, 384)).astype(np.float32)
    found, wanted = engine(x), reference.block_linear(x, weight, scales, np.zeros(1536, np.float32))
    noise = np.square(found - wanted).sum() / np.square(wanted).sum()
    assert noise < 1e-3  # 30 dB: a CPU without a kernel for integers multiplies in float


def test_published_rows_stand_beside_recorded_ones_and_those_of_this_run():
    ratios = {
        "INT8, grid per call": SimpleNamespace(median=2.5),
        "OpenVINO, fp32": SimpleNamespace(median=1.5),
    }
    races = {8: SimpleNamespace(ratios=ratios)}
    table = study.beside_published(races, {"OpenVINO, bf16": "no instructions for bf16"})
    assert table.loc[("INT8, grid per call", "this run"), 8] == "2.50"
    published = table.loc[("TensorRT, fp16", "published (a GPU)")]
    assert (published[1], published[256], published["note"]) == ("", "8", "TensorRT: 5 to 8")
    assert table.loc[("ONNX Runtime, fp16", "published (a GPU)"), 32] == "2 to 3"
    assert table.loc[("TensorRT, fp16", "this run"), "note"] == "no NVIDIA GPU here"
    assert table.loc[("OpenVINO, bf16", "this run"), "note"] == "no instructions for bf16"
    assert table.loc[("torch.compile, fp32", "this run"), "note"] == "only in the profile lab"
    recorded = [
        whose for way, whose in table.index if way == "ONNX Runtime, fp16" and "core" in whose
    ]
    assert len(recorded) >= 2
    assert all(float(table.loc[("ONNX Runtime, fp16", whose), 8]) > 1 for whose in recorded)


@pytest.mark.slow
def test_the_six_optimizations_are_counted_timed_and_judged(tmp_path):
    network, bound = small_encoder(), page()
    plain = tmp_path / "plain.onnx"
    _, traced = study.to_onnx(network, plain)
    exact = encoded(TOKENS, network)
    board = study.Board(study.in_pytorch(network), TOKENS, exact, bound["changed"], seconds=0.1)
    board.rows["INT8, grid per call"] = Interval(9.0, 16.0, 100, 12.0), Interval(2.0, 3.0, 100, 2.5)
    table = study.six_optimizations(plain, traced, network, board, texts=10)
    assert len(table) == 8
    found = table["this run"]
    assert found["redundant operations go: dropout"] == "0 Dropout nodes in the file"
    assert found["mixed precision, quantization"] == "INT8: 2.50 times as fast, changes 12 of 100"
    written = len(onnx.load(plain).graph.node)
    assert found["constant folding"] == f"{traced} nodes become {written}"
    assert traced > written
    assert found["layer fusion: several layers become one"].startswith(f"{written} nodes become ")
    assert "needs a training" in found["pruning: movement pruning"]
    pruned = study.pruned_vectors(network, board, 10)
    assert all(not torch.allclose(vectors, exact[:10], atol=1e-4) for vectors in pruned.values())


def test_exercises_of_the_page_are_those_of_the_module():
    asked = [text for text in map(ast.unparse, STATEMENTS) if "= exercise(" in text]
    assert [text.split("exercise('")[1].split("'")[0] for text in asked] == [
        task.id for task in reference.EXERCISES
    ]
