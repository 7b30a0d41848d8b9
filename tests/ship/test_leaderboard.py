"""The leaderboard: its order, one kind of machine at a time, files of others that hold anything. And the card."""

import json
import subprocess
import sys
from dataclasses import replace

import onnx
import pytest
import ship_cheats

from labkit import device, ledger
from labkit.errors import LabError
from labkit.ledger.rows import Machine, Scored
from labkit.ship import leaderboard as ship
from labkit.ship.card import precisions, write_card

BAD_NAMES = ("<script>alert(1)</script>", "'; DROP TABLE submissions; --", "| x | [a](javascript:b)")


def row_of(name, points=5.0, medal="silver", **others):
    """A row of this machine."""
    around = {"points": (points - 0.2, points, points + 0.2), "accuracy": (0.88, 0.9, 0.92), "latency": (0.4, 0.5, 0.6)}
    usual = {"run_key": f"submit-{name}", "device": "cpu", "threads": 1, "batch": 1, "medal": medal, "seed": 1}
    usual |= {f"{part}{end}": value for part, three in around.items()
              for end, value in zip(("_low", "", "_high"), three, strict=True)}  # fmt: skip
    usual |= {"latency_p50_ms": 0.4, "latency_p95_ms": 0.5, "size_bytes": 421_000, "cost_per_million_usd": 0.01}
    usual |= {"engine": "onnxruntime", "precision": "fp32", "sha256": "0" * 64}
    usual["machine_key"] = device.describe().machine_key
    return Scored(name=name, **(usual | others))


@pytest.fixture
def machine(own_artifacts):
    found = device.describe()
    ledger.add(found)
    return found


def test_a_medal_comes_first_then_the_score_and_each_name_once_with_its_newest_try(machine):
    large = row_of("a", 9.0, "bronze", size_bytes=1_000_000)
    ledger.add(large, row_of("b", 3.0), row_of("c", 6.0), row_of("c", 4.0, run_key="later"))
    ledger.add(Scored(run_key="last", name="c", device="cpu", reason="a gate", machine_key=machine.machine_key))
    [(kind, standings)] = ship.board().items()
    assert [(row.name, row.points, tries) for row, tries in standings] == [("c", 4.0, 3), ("b", 3.0, 1), ("a", 9.0, 1)]
    assert kind == ship.kind_of(machine)
    assert ship.as_text(ship.board()).splitlines()[1].split()[:3] == ["medal", "name", "tries"]
    assert ship.as_text(ship.board()).splitlines()[2].split()[:3] == ["silver", "c", "3"]


def test_a_medal_is_that_of_todays_limits(machine):
    ledger.add(row_of("once gold", medal="gold"), row_of("noise", medal=None, noisy=True), row_of("told", medal=None))
    [standings] = ship.board().values()
    assert {row.name: row.medal for row, _ in standings} == {"once gold": "silver", "told": "silver", "noise": None}


def test_another_kind_of_machine_stands_apart(machine):
    other = replace(machine, machine_key="other", cpu="Another CPU", gpu=None)
    ledger.add(other, row_of("a"), row_of("far", 99.0, machine_key="other"))
    assert [row.name for rows in ship.board().values() for row, _ in rows] == ["a"]
    assert {kind: [row.name for row, _ in rows] for kind, rows in ship.board(everything=True).items()} == {
        ship.kind_of(machine): ["a"],
        ship.kind_of(other): ["far"],
    }


def test_a_refused_submission_is_not_on_the_board(machine):
    ledger.add(Scored(run_key="x", name="refused", device="cpu", reason="a gate"))
    assert ship.board() == {}


def test_a_shared_file_joins_another_ledger_once_and_says_where_it_came_from(machine, tmp_path, monkeypatch):
    ledger.add(row_of("Ada"))
    path = ship.share(tmp_path / "ada.json")
    assert ship.merge(path) == (0, 0)  # its own rows do not come twice
    monkeypatch.setenv("LABKIT_ARTIFACTS", str(tmp_path / "other"))
    for _ in range(2):
        assert ship.merge(path) == (1, 0)
    [row] = ledger.find(Scored)
    assert (row.name, row.points, row.reported_by) == ("Ada", 5.0, "ada.json")
    assert ledger.find(Machine) == [machine]
    assert "ada.json: reported, not scored here" in ship.as_html(ship.board())


@pytest.mark.parametrize("name", BAD_NAMES)
def test_a_name_is_text_on_every_page(machine, tmp_path, name):
    ledger.add(row_of(name))
    page = ship.as_html(ship.board())
    assert "<script>" not in page
    assert len(ledger.find(Scored)) == 1
    onnx.save(ship_cheats.honest_file(), tmp_path / "model.onnx")
    folder = write_card(row_of(name), tmp_path / "model.onnx", tmp_path / "card")
    for file in ("card.html", "card.md"):
        assert "<script>" not in (folder / file).read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "text",
    [
        "<html>", "[]", "{}x", "[" * 100_000, '{"submissions": 5}', "x" * 10_000_000, "\x00\xff", "",
        json.dumps({"submissions": [{"run_key": "a"}] * 6000}),
    ],
    ids=["html", "list", "no json", "deep", "no rows", "10 MB", "bytes", "empty", "6,000 rows"],
)  # fmt: skip
def test_what_is_no_leaderboard_is_refused_and_changes_nothing(machine, tmp_path, text):
    (tmp_path / "evil.json").write_text(text, encoding="utf-8")
    with pytest.raises(LabError, match="no leaderboard"):
        ship.merge(tmp_path / "evil.json")
    assert ledger.find(Scored) == []


@pytest.mark.parametrize(
    "change",
    [
        {"points": 1e9, "points_high": 1e10}, {"accuracy": 2.0}, {"medal": "platinum"}, {"size_bytes": -1},
        {"points": "5"}, {"points": None}, {"latency_low": 0.9}, {"name": None}, {"run_key": ["x"]},
        {"size_bytes": 2**70},
    ],
    ids=lambda change: str(change)[:40],
)  # fmt: skip
def test_a_row_that_cannot_be_is_left_out(machine, tmp_path, change):
    page = {"submissions": [vars(row_of("good")), vars(row_of("bad")) | change]}
    (tmp_path / "file.json").write_text(json.dumps(page), encoding="utf-8")
    assert ship.merge(tmp_path / "file.json") == (1, 1)
    assert [row.name for row in ledger.find(Scored)] == ["good"]


def test_long_texts_of_others_are_cut(machine, tmp_path):
    page = {"submissions": [vars(row_of("n" * 1000, reason="r" * 100_000))]}
    (tmp_path / "file.json").write_text(json.dumps(page), encoding="utf-8")
    ship.merge(tmp_path / "file.json")
    [row] = ledger.find(Scored)
    assert max(len(row.name), len(row.reason)) <= 60


def test_only_what_was_scored_here_and_is_still_there_can_be_delivered(machine):
    ledger.add(row_of("gone"), row_of("told", reported_by="ada.json"))
    with pytest.raises(LabError, match="has a medal yet"):
        ship.best()
    ship.file_of(row_of("gone")).parent.mkdir()
    ship.file_of(row_of("gone")).write_bytes(b"x")
    assert ship.best().name == "gone"


def test_what_is_delivered_is_the_newest_try_of_a_name(machine):
    ledger.add(row_of("c", 9.0, sha256="1" * 64), row_of("c", 4.0, run_key="later"))
    ship.file_of(row_of("c")).parent.mkdir()
    for digest in "01":
        ship.file_of(row_of("c", sha256=digest * 64)).write_bytes(b"x")
    assert ship.best().points == 4.0


def test_a_card_says_what_each_layer_is_stored_in(tmp_path):
    onnx.save(ship_cheats.honest_file(), tmp_path / "model.onnx")
    assert [(kind, stored) for _, kind, stored in precisions(tmp_path / "model.onnx")] == [("Gemm", "float")]


def test_the_delivered_folder_answers_without_labkit_and_torch(machine, tmp_path):
    onnx.save(ship_cheats.honest_file(), tmp_path / "model.onnx")
    folder = write_card(row_of("Ada", accuracy_originals=0.93), tmp_path / "model.onnx", tmp_path / "delivery")
    card = (folder / "card.md").read_text(encoding="utf-8")
    assert "90.0 % (95 %: 88.0 to 92.0 %) of changed copies of test images; 93.0 % as they are" in card
    for heading in ("Task", "Data", "Accuracy", "Latency", "Size", "Engine", "Precision per layer", "Limits", "again"):
        assert heading in card
    assert len((folder / "predict.py").read_text(encoding="utf-8").splitlines()) <= 36
    assert all("==" in line for line in (folder / "requirements.txt").read_text(encoding="utf-8").splitlines()[1:])
    watch = "import runpy, sys; runpy.run_path('predict.py', run_name='__main__'); "
    watch += "assert not {'torch', 'labkit'} & set(sys.modules)"
    done = subprocess.run([sys.executable, "-P", "-c", watch], cwd=folder, env={"PATH": "/usr/bin:/bin"},
                          capture_output=True, text=True)  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 10
