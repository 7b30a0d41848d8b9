"""Scoring for real: an honest file, every cheat and every hostile file side by side, each in a process of its own."""

import json
import multiprocessing
import os
import re
import signal
import time
from contextlib import closing

import numpy as np
import onnx
import pytest
import ship_cheats

from labkit.errors import LabError
from labkit.measure.noise import computed_s
from labkit.ship import Submission, _child, judge, order, score
from labkit.ship.order import LEVELS, ExamSize, draw_exam, plain
from labkit.ship.scoring import _medal, ratio_of_p95

SMALL = ExamSize(images=250, rounds=140)
SEED = 1  # so few pictures are, about once in 250 draws, so easy that a memory of them shows in nothing


@pytest.fixture(scope="module")
def scores(tmp_path_factory):
    """The `Score` of an honest file, of all cheats and of all hostile files, by name."""
    folder = tmp_path_factory.mktemp("submissions")
    onnx.save(ship_cheats.honest_file(), folder / "honest.onnx")
    files = {"honest": folder / "honest.onnx"}
    for number, kind in enumerate((ship_cheats.CHEATS, ship_cheats.HOSTILE, ship_cheats.HARMLESS)):
        (folder / str(number)).mkdir()
        files |= ship_cheats.make_all(kind, folder / str(number))
    submissions = [Submission(path, name=name) for name, path in files.items()]
    submissions.append(Submission(files["honest"], engine="../../evil", name="no engine"))
    return {each.name: each for each in score(submissions, size=SMALL, seed=SEED)}


@pytest.mark.kills
def test_an_honest_linear_classifier_is_scored_and_not_refused_whatever_stands_beside_it(scores):
    found = scores["honest"]
    assert not found.refused
    assert 0.5 < found.accuracy.median < 0.8
    assert found.latency.low <= found.latency.median <= found.latency.high < 1
    assert found.points.median > 3


@pytest.mark.kills
@pytest.mark.parametrize("name", [*ship_cheats.CHEATS, *ship_cheats.HOSTILE])
def test_a_cheat_and_a_hostile_file_are_refused_with_the_reason(scores, name):
    says, _ = (ship_cheats.CHEATS | ship_cheats.HOSTILE)[name]
    assert scores[name].refused and scores[name].medal is None
    assert re.search(says, scores[name].reasons[0]), scores[name].reasons


@pytest.mark.kills
def test_a_file_that_recognises_some_of_the_judges_pictures_scores_less_than_an_honest_one(scores):
    """A file of 200 kB has room for few memories; that of all test images is refused, see `CHEATS`."""
    [found] = [scores[name] for name in ship_cheats.HARMLESS]
    assert np.mean(found.facts["right_before"]) > np.mean(scores["honest"].facts["right_before"])
    assert found.points.high < scores["honest"].points.low


@pytest.mark.kills
def test_an_engine_that_is_none_is_refused(scores):
    assert "no engine" in scores["no engine"].reasons[0]


@pytest.mark.kills
def test_the_medal_counts_the_changed_copies_alone(scores):
    facts = scores["honest"].facts
    assert scores["honest"].accuracy.median == np.mean(facts["right"]) < np.mean(facts["right_before"])
    assert len(facts["right"]) == SMALL.images


@pytest.mark.kills
def test_nothing_is_stored_of_a_refused_file(scores, own_artifacts):
    assert not order.file_of(scores["at random"].facts["sha256"]).exists()


@pytest.mark.kills
def test_the_exam_is_drawn_when_all_files_are_loaded(tmp_path, monkeypatch):
    onnx.save(ship_cheats.honest_file(), tmp_path / "honest.onnx")
    happened = []
    load, draw = judge.Server.load, judge.draw_exam
    monkeypatch.setattr(judge.Server, "load", lambda *args: happened.append("load") or load(*args))
    monkeypatch.setattr(judge, "draw_exam", lambda *args: happened.append("draw") or draw(*args))
    first, second = (score([Submission(tmp_path / "honest.onnx")], size=ExamSize(20, 20))[0] for _ in range(2))
    assert happened == 2 * [*3 * ["load"], "draw"]
    assert first.facts["seed"] != second.facts["seed"]


def listening():
    """A `Server` without a process, and the end of its pipe that the process would have."""
    child = _child.Server.__new__(_child.Server)
    child.pipe, other = multiprocessing.Pipe()
    child.process = multiprocessing.Process()
    return child, other


BAD_WORDS = [b"", b"\xff", b"[1]", b"5", b"[" * 3000, b'{"precision": 8}', b'{"precision": {"a": "b"}}']


@pytest.mark.parametrize("words", BAD_WORDS, ids=lambda words: repr(words[:30]))
def test_words_of_another_form_are_a_refusal(words):
    child, other = listening()
    other.send_bytes(b"{}")
    other.send_bytes(words)
    with pytest.raises(LabError, match="no answer"):
        child.load("model.onnx", "onnxruntime")


@pytest.mark.parametrize(
    ("sent", "says"),
    [(b"A" + bytes(40), "in part"), (b'{"refused": "too slow"}', "too slow"), (b"A" + bytes(5000), "process ended")],
)
def test_an_answer_has_ten_numbers_for_each_picture_or_is_refused(sent, says, monkeypatch):
    child, other = listening()
    monkeypatch.setattr(child.process, "join", lambda seconds: None)
    other.send_bytes(sent)
    with pytest.raises(LabError, match=says):
        child.answer(np.zeros((2, 1, 28, 28), np.float32))


def works(pipe):
    """Works when it is asked, in seconds of computing: before its answer, and after it."""
    while True:
        for seconds in json.loads(pipe.recv_bytes()):
            end = time.thread_time() + seconds
            while time.thread_time() < end:
                pass
            pipe.send_bytes(b"{}")


@pytest.mark.kills
@pytest.mark.skipif(computed_s(os.getpid()) is None, reason="this system does not say what a process computed")
def test_what_counts_is_computing_also_after_the_answer_and_no_waiting_for_a_core():
    with closing(_child.Child(works, 10)) as child:
        child.pipe.send_bytes(b"[0]")
        child.said(_child.START_S)
        before, begin = child.computed(), time.perf_counter()
        child.pipe.send_bytes(b"[0.05, 0.1]")
        os.kill(child.process.pid, signal.SIGSTOP)
        time.sleep(0.5)
        os.kill(child.process.pid, signal.SIGCONT)
        child.said(5)
        spent, passed = child.computed(5) - before, time.perf_counter() - begin
    assert 0.15 <= spent < 0.25 < 0.5 < passed


def test_an_answer_that_does_not_come_is_not_waited_for(monkeypatch):
    monkeypatch.setattr(_child, "ANSWER_S", 0.01)
    child, _other = listening()
    with pytest.raises(LabError, match="did not answer"):
        child.answer(np.zeros((1, 1, 28, 28), np.float32))


@pytest.mark.kills
def test_a_child_that_dies_is_said_in_words():
    with closing(_child.Server()) as child:
        child.process.kill()
        with pytest.raises(LabError, match="process ended"):
            child.load("model.onnx", "onnxruntime")


def test_a_copy_is_changed_and_every_picture_comes_twice():
    exam = draw_exam(100, seed=1)
    first, second = (np.flatnonzero(exam.order == each)[0] for each in (7, 107))
    assert np.array_equal(np.sort(exam.order), np.arange(200))
    assert exam.labels[first] == exam.labels[second]
    assert 0 < np.abs(exam.pictures[first] - exam.pictures[second]).mean() < 1
    assert not np.array_equal(draw_exam(100, seed=2).labels, exam.labels)


def test_a_ratio_of_percentiles_is_that_of_the_samples():
    slow = [2.0 + 0.01 * (place % 7) for place in range(200)]
    fast = [each / 4 for each in slow]
    low, high = found = ratio_of_p95(fast, slow)
    assert found.median == pytest.approx(0.25)
    assert low <= found.median <= high
    assert high - low < 0.02


def test_a_medal_takes_every_limit_and_the_reason_names_the_one_that_is_missed():
    gold, silver, bronze = LEVELS
    assert gold.accuracy >= silver.accuracy >= bronze.accuracy
    assert gold.latency <= silver.latency <= bronze.latency
    assert gold.size_bytes < silver.size_bytes < bronze.size_bytes
    exactly = ratio_of_p95([gold.latency] * 20, [1.0] * 20)
    assert _medal(gold.accuracy, exactly, gold.size_bytes, noisy=False) == ("gold", ())
    medal, reasons = _medal(gold.accuracy, exactly, gold.size_bytes + 1, noisy=False)
    assert medal == "silver"
    assert len(reasons) == 1 and "kB" in reasons[0]


def test_where_noise_could_decide_it_says_too_noisy():
    silver = LEVELS[1]
    chance = np.random.default_rng(0)
    times = [silver.latency * each for each in chance.uniform(0.5, 1.5, 40)]
    latency = ratio_of_p95(times, chance.uniform(0.5, 1.5, 40))
    medal, reasons = _medal(silver.accuracy, latency, silver.size_bytes, noisy=True)
    assert medal is None
    assert "too noisy" in reasons[0]


@pytest.mark.parametrize(
    "text", ["<script>alert(1)</script>", "'; DROP TABLE submissions; --", "x" * 10_000_000, "\n\x00\x1b[31m", "", "é‮"]
)
def test_any_name_becomes_one_short_line(text):
    found = plain(text)
    assert 1 <= len(found) <= 60
    assert found.isprintable()


@pytest.mark.parametrize("name", ["missing.onnx", "model.py", "folder.onnx", "large.onnx"])
def test_what_is_no_file_of_at_most_16_mb_is_refused_before_anything_starts(tmp_path, name):
    (tmp_path / "model.py").write_bytes(b"x")
    (tmp_path / "folder.onnx").mkdir()
    with (tmp_path / "large.onnx").open("wb") as file:
        file.truncate(2**24 + 1)
    with pytest.raises(LabError, match="nothing to score"):
        Submission(tmp_path / name)
