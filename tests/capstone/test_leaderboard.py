"""The leaderboard: its order, one kind of machine at a time, files of others that hold anything.

And the card.
"""

import re
import subprocess
import sys
from dataclasses import replace

import onnx
import pytest
import ship_cheats
from rows_made_up import write_scores

from labkit import device, ledger
from labkit.capstone.judge import Score, keep_score
from labkit.capstone.order import USD_PER_HOUR, stored_file
from labkit.errors import LabError
from labkit.ledger.merge import merge, pack
from labkit.ledger.rows import Decision, RaceScore, Scored
from labkit.measure.stats import Interval
from labkit.report import leaderboard as ship
from labkit.report.deployment_card import precisions, write_card

BAD_NAMES = (
    "<script>alert(1)</script>",
    "'; DROP TABLE submissions; --",
    "| x | [a](javascript:b)",
)


def row_of(name, points=5.0, medal="silver", **others):
    """A row of this machine."""
    around = {
        "points": (points - 0.2, points, points + 0.2),
        "accuracy": (0.88, 0.9, 0.92),
        "latency": (0.4, 0.5, 0.6),
    }
    usual = {
        "run_key": f"submit-{name}",
        "device": "cpu",
        "threads": 1,
        "batch": 1,
        "medal": medal,
        "seed": 1,
    }
    usual |= {f"{part}{end}": value for part, three in around.items()
              for end, value in zip(("_low", "", "_high"), three, strict=True)}  # fmt: skip
    usual |= {
        "latency_p50_ms": 0.4,
        "latency_p95_ms": 0.5,
        "size_bytes": 421_000,
        "cost_per_million_usd": 0.01,
    }
    usual |= {"engine": "onnxruntime", "precision": "fp32", "sha256": "0" * 64}
    usual["machine_key"] = device.describe().machine_key
    return Scored(name=name, **(usual | others))


FACTS = {"engine": "onnxruntime", "precision": "fp32", "sha256": "0" * 64, "seed": 1, "size_bytes": 400_000,
         "times": [0.001, 0.002], "right_before": [True, False]}  # fmt: skip


@pytest.fixture
def machine(own_artifacts):
    found = device.describe()
    ledger.add(found)
    return found


def test_a_million_calls_cost_what_the_hours_cost_that_they_take(machine):
    score = Score(
        "a",
        None,
        (),
        points=Interval(4.0, 6.0, 20, 5.0),
        accuracy=Interval(0.8, 0.9, 20, 0.85),
        latency=Interval(0.4, 0.6, 20, 0.5),
        facts=FACTS | {"times": [0.0035, 0.0036, 0.0037]},
    )
    row = keep_score(score)
    # a million calls of 3.6 ms take 3600 s, which is an hour
    assert row.cost_per_million_usd == pytest.approx(USD_PER_HOUR)


def test_a_medal_comes_first_then_the_score_and_each_name_once_with_its_newest_try(machine):
    large = row_of("a", 9.0, "bronze", size_bytes=1_000_000)
    ledger.add(large, row_of("b", 3.0), row_of("c", 6.0), row_of("c", 4.0, run_key="later"))
    ledger.add(
        Scored(
            run_key="last", name="c", device="cpu", reason="a gate", machine_key=machine.machine_key
        )
    )
    [(kind, standings)] = ship.board().items()
    assert [(row.name, row.points, tries) for row, tries in standings] == [
        ("c", 4.0, 3),
        ("b", 3.0, 1),
        ("a", 9.0, 1),
    ]
    assert kind == ship.kind_of(machine)
    assert ship.as_text(ship.board()).splitlines()[1].split()[:3] == ["medal", "name", "tries"]
    assert ship.as_text(ship.board()).splitlines()[2].split()[:3] == ["silver", "c", "3"]


def test_a_medal_is_that_of_todays_limits(machine):
    ledger.add(
        row_of("once gold", medal="gold"),
        row_of("noise", medal=None, noisy=True),
        row_of("told", medal=None),
    )
    [standings] = ship.board().values()
    assert {row.name: row.medal for row, _ in standings} == {
        "once gold": "silver",
        "told": "silver",
        "noise": None,
    }


def test_another_kind_of_machine_stands_apart(machine):
    other = replace(machine, machine_key="other", cpu="Another CPU", gpu=None)
    ledger.add(other, row_of("a"), row_of("far", 99.0, machine_key="other"))
    assert [row.name for rows in ship.board().values() for row, _ in rows] == ["a"]
    assert {
        kind: [row.name for row, _ in rows] for kind, rows in ship.board(everything=True).items()
    } == {
        ship.kind_of(machine): ["a"],
        ship.kind_of(other): ["far"],
    }


def test_a_refused_submission_is_not_on_the_board(machine):
    ledger.add(Scored(run_key="x", name="refused", device="cpu", reason="a gate"))
    assert ship.board() == {}


def test_what_others_report_stands_below_what_was_judged_here(machine):
    ledger.add(row_of("Ada", 9.0, reported_by="ada.zip"), row_of("Bob", 4.0))
    [standings] = ship.board().values()
    assert [row.name for row, _ in standings] == ["Bob", "Ada"]
    assert "as reported by ada.zip" in ship.as_text(ship.board())


def test_a_medal_that_does_not_exist_is_replaced_by_what_the_figures_earn(machine):
    ledger.add(row_of("Ada", medal="platinum", reported_by="ada.zip"))
    [standings] = ship.board().values()
    assert standings[0].row.medal == "silver"


def test_a_packed_ledger_with_scores_and_refusals_can_be_merged(machine, tmp_path, monkeypatch):
    scored = Score("Ada", "silver", (), *3 * [Interval(1.0, 2.0, 20, 1.5)], facts=FACTS)
    keep_score(scored)
    keep_score(Score("Eve", None, ("A gate.",), facts={**FACTS, "sha256": "1" * 64}))
    parcel = pack(tmp_path / "ada.zip")
    monkeypatch.setenv("LABKIT_ARTIFACTS", str(tmp_path / "other"))
    merge(parcel)
    [standings] = ship.board().values()
    assert [(row.name, row.reported_by) for row, _ in standings] == [("Ada", "ada.zip")]
    assert {row.name for row in ledger.find(Scored)} == {"Ada", "Eve"}


def test_both_boards_stand_under_their_own_heads_and_come_with_a_packed_ledger(
    machine, tmp_path, monkeypatch
):
    write_scores("Ada")
    parcel = pack(tmp_path / "ada.zip")
    monkeypatch.setenv("LABKIT_ARTIFACTS", str(tmp_path / "other"))
    write_scores("Bob")
    merge(parcel)
    boards = ship.board(RaceScore) | ship.board()
    assert [[row.name for row, _ in standings] for standings in boards.values()] == 2 * [
        ["Bob", "Ada"]
    ]
    text = ship.as_text(boards)
    fast, order = text.split("The order of lesson 20, on ")
    assert fast.startswith("Trained to 80 % on fashion-mnist: ")
    for part in (fast, order):
        assert part.count("as reported by ada.zip") == part.count("judged here") == 1
    heads = [re.sub("<.*?>", "", part) for part in re.findall("<b>.*?</b>", ship.as_html(boards))]
    assert [head.split(" ")[0] for head in heads] == ["Trained", "The"]


def test_the_card_has_the_decision_of_the_run_that_scored_the_file(machine, tmp_path):
    onnx.save(ship_cheats.honest_file(), tmp_path / "model.onnx")
    ledger.add(Decision(run_key="submit-Ada", text="Ship it.", because="right, in %: 90"))
    for name, says in (("Ada", True), ("Bob", False)):
        folder = write_card(row_of(name), tmp_path / "model.onnx", tmp_path / name)
        assert (
            "Ship it. It rests on right, in %: 90."
            in (folder / "card.html").read_text(encoding="utf-8")
        ) == says


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


def test_only_what_was_scored_here_and_is_still_there_can_be_delivered(machine):
    ledger.add(row_of("gone"), row_of("told", reported_by="ada.json"))
    with pytest.raises(LabError, match="has a medal yet"):
        ship.best()
    stored_file("0" * 64).parent.mkdir()
    stored_file("0" * 64).write_bytes(b"x")
    assert ship.best().name == "gone"


def test_what_is_delivered_is_the_newest_try_of_a_name(machine):
    ledger.add(row_of("c", 9.0, sha256="1" * 64), row_of("c", 4.0, run_key="later"))
    stored_file("0").parent.mkdir()
    for digest in "01":
        stored_file(digest * 64).write_bytes(b"x")
    assert ship.best().points == 4.0


def test_a_card_says_what_each_layer_is_stored_in(tmp_path):
    onnx.save(ship_cheats.honest_file(), tmp_path / "model.onnx")
    assert [(kind, stored) for _, kind, stored in precisions(tmp_path / "model.onnx")] == [
        ("Gemm", "float")
    ]


def test_the_delivered_folder_answers_without_labkit_and_torch(machine, tmp_path):
    onnx.save(ship_cheats.honest_file(), tmp_path / "model.onnx")
    folder = write_card(
        row_of("Ada", accuracy_originals=0.93), tmp_path / "model.onnx", tmp_path / "delivery"
    )
    card = (folder / "card.md").read_text(encoding="utf-8")
    assert (
        "90.0 % (95 %: 88.0 to 92.0 %) of changed copies of test images; 93.0 % as they are" in card
    )
    for heading in (
        "Task",
        "Data",
        "Accuracy",
        "Latency",
        "Size",
        "Engine",
        "Precision per layer",
        "Limits",
        "again",
    ):
        assert heading in card
    assert len((folder / "predict.py").read_text(encoding="utf-8").splitlines()) <= 36
    assert all(
        "==" in line
        for line in (folder / "requirements.txt").read_text(encoding="utf-8").splitlines()[1:]
    )
    watch = "import runpy, sys; runpy.run_path('predict.py', run_name='__main__'); "
    watch += "assert not {'torch', 'labkit'} & set(sys.modules)"
    done = subprocess.run([sys.executable, "-P", "-c", watch], cwd=folder, env={"PATH": "/usr/bin:/bin"},
                          capture_output=True, text=True)  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 10
