"""The lesson of the customer's order: its functions do what they say, and a reference answer
wins nobody a medal.
"""

import itertools
import math
from dataclasses import replace
from types import SimpleNamespace

import nbformat
import numpy as np
import onnx
import onnxruntime
import pages
import pytest
import torch
from torch import nn

from labkit import quantize
from labkit.capstone.order import MEDALS
from labkit.files import root
from labkit.lesson.exercises import find
from labkit.lesson.exercises import l20_ship_it as reference
from labkit.lesson.support import load_support
from labkit.measure import Interval

study = load_support("ship_it")
STATEMENTS = pages.statements_of("20_ship_it")
CELLS = nbformat.read(root() / "notebooks" / "20_ship_it.ipynb", as_version=4).cells


def judged(name="file", *, medal=None, seconds=1.0, size_bytes=1.0, points=1.0, reasons=()):
    """A score by the judge: constant times, the reference at 2 s and 8 bytes, the floor at half
    a second.
    """
    facts = {
        "times": [seconds] * 40,
        "reference": [2.0] * 40,
        "floor": [0.5] * 40,
        "again": [2.0] * 40,
    }
    facts |= {"right": [True] * 40, "size_bytes": size_bytes, "reference_bytes": 8.0}
    interval = Interval(points, points, 40, points)
    return study.Score(name, medal, reasons, interval, interval, interval, False, facts)


def bound_by(*ids, **names):
    """What these cells of the page bind."""
    bound = dict(names)
    for cell in CELLS:
        if cell.id in ids:
            exec(cell.source, bound)
    return bound


# --- the page ---


def test_a_thin_layer_of_full_rank_answers_as_before_and_a_rank_beyond_it_is_cut():
    page = bound_by("s20-002", "s20-013", "s20-13b")
    torch.manual_seed(0)
    network = nn.Sequential(nn.Flatten(), nn.Linear(12, 7, bias=False), nn.ReLU(), nn.Linear(7, 3))
    x = torch.randn(5, 12)
    for rank in (7, 500):
        assert torch.allclose(page["thin"](network, rank)(x), network(x), atol=1e-5)
    assert not torch.allclose(page["thin"](network, 2)(x), network(x), atol=1e-3)


def test_every_field_of_a_design_is_one_that_an_answer_may_name():
    page = bound_by("s20-002", "s20-013", "s20-13b")
    fields = set(page["Design"].__dataclass_fields__)
    assert fields == {*reference.FIELDS, *reference.SWITCHES}
    for design in (*reference.my_tries, reference.delivered):
        page["Design"](**design)


@pytest.mark.parametrize("id", ["my-tries", "delivered"])
def test_an_answer_of_the_reference_is_named_as_such_on_the_board(id):
    """The cell after the exercise asks whether the answer that is used is the one that was
    written.
    """
    sources = "\n".join(cell.source for cell in CELLS)
    name = find(id).name
    assert f'written = {name}\n{name} = exercise("{id}").check({name})' in sources
    assert f'author = "you" if {name} is written else "the reference answer"' in sources


def test_the_page_claims_no_medal_and_the_target_is_no_claim_of_the_course():
    claims = [cell.source for cell in CELLS if "claim(" in cell.source]
    assert not any(
        "medal" in source.partition("claim(")[2] for source in claims if "cheat-pays" not in source
    )


def test_a_part_of_the_design_has_the_techniques_that_are_named_and_no_other():
    page = bound_by("s20-002", "s20-013", "s20-13b")
    (cell,) = [cell for cell in CELLS if cell.id == "s20-030"]
    source = cell.source[cell.source.index("OFF = ") :]
    page["design"] = page["Design"](share=0.6, rank=16, epochs=4, int8=True)
    exec(source, page)
    assert page["techniques"] == ["channels", "thin", "INT8"]
    assert page["with_only"](frozenset(page["techniques"])) == page["design"]
    assert page["with_only"]({"thin"}) == page["Design"](rank=16)
    assert page["with_only"]({"channels", "INT8"}) == replace(page["design"], rank=0)

    # healing alone is no technique of the three
    page["design"] = page["Design"](rank=8, epochs=1, int8=True)
    exec(source, page)
    assert page["techniques"] == ["thin", "INT8"]


def test_what_is_lost_on_copies_is_the_mean_of_the_differences_with_its_interval():
    (cell,) = [cell for cell in CELLS if cell.id == "s20-025"]
    page = {"np": np}
    exec(cell.source[: cell.source.index("def classes")], page)
    right, on_copies = np.ones(400, bool), np.arange(400) % 4 > 0
    loss, half = page["lost_on_copies"](right, on_copies)
    assert loss == pytest.approx(25)
    assert half == pytest.approx(1.96 * 100 * math.sqrt(0.25 * 0.75 / 399))


# --- the board ---


def test_the_best_file_has_the_best_medal_and_of_several_the_highest_score():
    board = study.Board(images=0, rounds=0)
    board.scores = {
        "a": judged(medal="silver", points=5.0),
        "b": judged(medal="silver", points=9.0),
        "c": judged(medal=None, points=50.0),
        "d": judged(medal="bronze", points=20.0),
    }
    board.authors = dict.fromkeys(board.scores, "you")
    assert board.best(board.scores) == "b"
    assert board.best("cd") == "d"
    assert list(board.show().index) == ["b", "a", "d", "c"]
    assert set(board.show()["from"]) == {"you"}


def test_a_refused_file_stands_on_the_board_without_numbers():
    board = study.Board(images=0, rounds=0)
    board.scores = {"cheat": study.Score("cheat", None, ("It knows.",), facts={"size_bytes": 9000})}
    board.authors = {"cheat": "the course"}
    assert board.show().loc["cheat"].tolist() == ["the course", "refused", "-", "9", "-", "-"]


def test_the_table_of_medals_says_what_is_compared():
    table = study.medals_table()
    assert list(table.index) == [medal.name for medal in MEDALS]
    assert any("without the floor of a call" in column for column in table)


def test_without_gates_a_file_earns_what_its_facts_allow():
    small = judged(seconds=1.0, size_bytes=90_000)  # (1 - 0.5) / (2 - 0.5) of the reference
    assert study.medal_without_gates(small) == "gold"
    assert study.medal_without_gates(judged(seconds=1.6, size_bytes=90_000)) == "silver"
    assert study.medal_without_gates(judged(seconds=3.0)) == "no medal"


# --- what a technique is worth ---


def scores_of(byte_factors, overlap=1.0):
    """Scores of every set: each technique divides the bytes by its factor, two of them together
    save less.
    """
    scores = {}
    for chosen in study.subsets(byte_factors):
        smaller = math.prod(byte_factors[name] for name in chosen) * (
            overlap if len(chosen) > 1 else 1.0
        )
        scores[chosen] = judged(seconds=2.0, size_bytes=8.0 / smaller)
    return scores


def test_techniques_that_do_not_overlap_are_worth_the_same_in_every_place():
    worth = study.Worth(scores_of({"a": 4.0, "b": 9.0}))
    factors = worth.factors([("a", "b"), ("b", "a")], reference.fair_factors)
    assert [kind["a"].median for kind in factors.values()] == pytest.approx([2, 2, 2])
    assert [kind["b"].median for kind in factors.values()] == pytest.approx([3, 3, 3])
    assert worth.overlap("a").median == pytest.approx(1)


def test_the_example_on_the_page_is_right():
    worth = study.Worth(scores_of({"A": 16.0, "B": 9.0}, overlap=0.25))
    assert worth.score(frozenset("AB")) == pytest.approx(6)
    first, fair, last = worth.factors([("A", "B"), ("B", "A")], reference.fair_factors).values()
    assert (
        first["A"].median,
        last["A"].median,
        first["B"].median,
        last["B"].median,
    ) == pytest.approx((4, 2, 3, 1.5))
    assert fair["A"].median == pytest.approx(8**0.5) and fair["B"].median == pytest.approx(4.5**0.5)
    assert fair["A"].median * fair["B"].median == pytest.approx(6)
    assert worth.overlap("A").median == pytest.approx(2)


def test_a_gain_of_time_is_that_of_the_last_one():
    scores = scores_of({"a": 1.0, "b": 1.0})
    scores[frozenset("ab")].facts["times"] = [0.5] * 40
    assert study.Worth(scores).time_gain("b").median == pytest.approx(4)


def test_the_sets_are_all_but_the_empty_one():
    assert len(study.subsets("abc")) == 7
    assert frozenset() not in study.subsets("abc")


def test_pictures_are_drawn_for_one_technique_and_for_three():
    for count in (1, 3):
        names = "abc"[:count]
        worth = study.Worth(scores_of(dict.fromkeys(names, 4.0)))
        orders = list(itertools.permutations(names))
        figure = study.draw_worth(worth.factors(orders, reference.fair_factors))
        assert len(figure.axes[0].get_yticks()) == count


def test_the_share_of_healing_is_that_of_the_means():
    cut, renewed, healed = (np.arange(1000) < count for count in (100, 500, 900))
    share = study.share_of_healing(cut.astype(float), renewed.astype(float), healed.astype(float))
    assert share.median == pytest.approx(50)
    assert share.low < 50 < share.high


# --- fake quantizers ---


@pytest.mark.slow
def test_a_network_with_grids_is_written_as_integers_and_answers_as_the_fake_one(tmp_path):
    torch.manual_seed(0)
    network = nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(),
        nn.Conv2d(8, 8, 3, padding=1, bias=False), nn.MaxPool2d(2), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(),
        nn.Sequential(nn.Linear(128, 4, bias=False), nn.Linear(4, 16, bias=False)), nn.BatchNorm1d(16),
        nn.Linear(16, 3),
    ).eval()  # fmt: skip
    x = torch.randn(40, 1, 8, 8)
    rounded = study.with_grids(network, x)
    with torch.inference_mode():
        expected, plain = rounded(x), network(x)
    assert 0 < (expected - plain).norm() / plain.norm() < 0.2
    path = tmp_path / "qat.onnx"
    quantize.from_fake_quantized(rounded, x[:4], path)
    stored = [t for t in onnx.load(path).graph.initializer if t.data_type == onnx.TensorProto.INT8]
    assert (
        sum(math.prod(tensor.dims) for tensor in stored) >= 72 + 8 * 72 + 128 * 4 + 4 * 16 + 16 * 3
    )
    session = onnxruntime.InferenceSession(path)
    (answers,) = session.run(None, {session.get_inputs()[0].name: x.numpy()})
    assert np.linalg.norm(answers - expected.numpy()) / np.linalg.norm(expected) < 0.05


def test_a_fake_quantizer_passes_the_gradient_inside_its_grid_and_none_beyond():
    grid = study.Grid(1.0, -1, 1)
    x = torch.tensor([0.35, -1.2, 5.1], requires_grad=True)
    rounded = grid(x)
    rounded.sum().backward()
    assert rounded.tolist() == [0, -1, 1]
    assert x.grad.tolist() == [1, 0, 0]


# --- delivery ---


def test_a_folder_runs_where_labkit_and_torch_are_blocked(tmp_path):
    (tmp_path / "predict.py").write_text("import numpy; print('numpy runs')")
    assert study.run_alone(tmp_path) == "numpy runs\n"
    for blocked in ("labkit", "torch"):
        (tmp_path / "predict.py").write_text(f"import {blocked}")
        assert "ModuleNotFoundError" in study.run_alone(tmp_path)


def test_the_floor_is_the_median_of_the_empty_network():
    assert study.floor_of(SimpleNamespace(facts={"floor": [1, 2, 9], "reference": [4.0] * 3})) == (
        2,
        4,
    )


def test_a_coded_file_is_delivered_as_the_network_in_it(monkeypatch):
    """What is written is what the judge stored, under the hash of the file that was handed in."""
    written = []
    monkeypatch.setattr(study, "keep_score", lambda judged, run_key: "row")
    monkeypatch.setattr(
        study, "write_card", lambda row, path, folder: written.append((row, path)) or folder
    )
    coded = judged("coded")
    coded.facts["sha256"] = "abc"
    study.deliver(coded, "run")
    assert written == [("row", study.stored_file("abc"))]
    assert written[0][1].suffix == ".onnx"
