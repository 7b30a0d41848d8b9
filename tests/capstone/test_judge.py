"""Scoring for real: an honest file, every cheat and every hostile file, each in a process of its
own.
"""

import os
import re
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import ship_cheats

from labkit import compress
from labkit.capstone import answering, gates, judge, order
from labkit.capstone.exam import ExamSize, draw_exam
from labkit.capstone.judge import score
from labkit.capstone.order import MEDALS, Submission, medal_and_reasons, one_line
from labkit.errors import LabError
from labkit.measure.tails import ratio_of_p95

# each file has a process of its own: minutes on a busy machine
pytestmark = pytest.mark.timeout(1200)
SMALL = ExamSize(images=250, rounds=140)
# so few pictures are, about once in 250 draws, so easy that a memory of them shows in nothing
SEED = 1


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
    compress.save(folder / "coded.onnx.gz", files["honest"])
    submissions.append(Submission(folder / "coded.onnx.gz", name="coded"))
    (folder / "damaged.onnx.gz").write_bytes((folder / "coded.onnx.gz").read_bytes()[:-100])
    submissions.append(Submission(folder / "damaged.onnx.gz", name="damaged"))
    by_name = {each.name: each for each in score(submissions, size=SMALL, seed=SEED)}
    # Each test has an artifacts folder of its own, so what was stored here is read here.
    for each in by_name.values():
        stored = order.stored_file(each.facts["sha256"]) if "sha256" in each.facts else None
        each.facts["stored"] = stored.read_bytes() if stored and stored.exists() else None
    return by_name


@pytest.mark.kills
def test_an_honest_linear_classifier_is_scored_and_not_refused_whatever_stands_beside_it(scores):
    found = scores["honest"]
    assert not found.refused
    assert 0.5 < found.accuracy.median < 0.8
    assert len(found.facts["floor"]) == len(found.facts["times"])
    assert 0 <= found.latency.low <= found.latency.median <= found.latency.high < 1
    assert found.points.median > 3


@pytest.mark.kills
@pytest.mark.parametrize("name", [*ship_cheats.CHEATS, *ship_cheats.HOSTILE])
def test_a_cheat_and_a_hostile_file_are_refused_with_the_reason(scores, name):
    says, _ = (ship_cheats.CHEATS | ship_cheats.HOSTILE)[name]
    assert scores[name].refused and scores[name].medal is None
    assert re.search(says, scores[name].reasons[0]), scores[name].reasons


@pytest.mark.kills
def test_a_file_that_recognises_some_of_the_judges_pictures_scores_less_than_an_honest_one(scores):
    """A file of 200 kB has room for few memories; that of all test images is refused, see
    `CHEATS`.
    """
    [found] = [scores[name] for name in ship_cheats.HARMLESS]
    assert np.mean(found.facts["right_before"]) > np.mean(scores["honest"].facts["right_before"])
    assert found.points.high < scores["honest"].points.low


@pytest.mark.kills
def test_an_engine_that_is_none_is_refused(scores):
    assert "no engine" in scores["no engine"].reasons[0]


@pytest.mark.kills
def test_the_medal_counts_the_changed_copies_alone(scores):
    facts = scores["honest"].facts
    assert (
        scores["honest"].accuracy.median == np.mean(facts["right"]) < np.mean(facts["right_before"])
    )
    assert len(facts["right"]) == SMALL.images


@pytest.mark.kills
def test_nothing_is_stored_of_a_refused_file(scores):
    assert scores["honest"].facts["stored"] is not None
    assert scores["at random"].facts["stored"] is None


@pytest.mark.kills
def test_a_coded_file_is_scored_by_the_network_in_it_and_by_its_own_bytes(scores):
    coded, honest = scores["coded"].facts, scores["honest"].facts
    assert not scores["coded"].refused
    assert coded["right"] == honest["right"]
    assert coded["size_bytes"] < honest["size_bytes"]
    # what is delivered is the ONNX file: predict.py opens it without labkit
    assert onnx.load_from_string(coded["stored"]) == ship_cheats.honest_file()


@pytest.mark.kills
def test_a_damaged_coded_file_is_refused_with_the_reason(scores):
    assert "no whole file of a coded network" in scores["damaged"].reasons[0]


@pytest.mark.kills
def test_the_exam_is_drawn_when_all_files_have_been_read_and_what_changes_afterwards_does_not_count(
    tmp_path, monkeypatch
):
    onnx.save(ship_cheats.honest_file(), tmp_path / "honest.onnx")
    draw = judge.draw_exam
    seeds = []

    def draw_and_change_the_file(count, seed):
        (tmp_path / "honest.onnx").write_bytes(b"another file")
        seeds.append(seed)
        return draw(count, seed)

    monkeypatch.setattr(judge, "draw_exam", draw_and_change_the_file)
    [found] = score([Submission(tmp_path / "honest.onnx")], size=ExamSize(20, 20))
    assert not found.refused
    onnx.save(ship_cheats.honest_file(), tmp_path / "honest.onnx")
    score([], size=ExamSize(20, 20))
    assert len(set(seeds)) == 2


class Played:
    """A session that waits, and that computes in a thread of its own, as an engine does, before
    it answers.
    """

    def __init__(self, waits=0.0, computes=0.0):
        self.waits, self.computes = waits, computes
        self.threads = ThreadPoolExecutor(1)

    def __call__(self, pictures):
        time.sleep(self.waits)
        self.threads.submit(self.compute).result()
        time.sleep(0.01)  # its thread rests: only then the system has counted
        return np.zeros((len(pictures), 10))

    def compute(self):
        end = time.thread_time() + self.computes
        while time.thread_time() < end:
            pass


@pytest.mark.skipif(
    not Path("/proc/self/task").exists(), reason="this system does not tell of single threads"
)
def test_what_counts_is_computing_in_any_thread_and_no_waiting_for_a_core(monkeypatch):
    monkeypatch.setattr(answering, "WARM_UP_CALLS", 0)
    sessions = {"submission": Played(computes=0.05), "reference": Played(waits=0.3)}
    times, single = answering.take_turns(sessions, np.zeros((2, 1, 28, 28)), seed=0)
    assert single.shape == (2, 10)
    assert min(times["submission"]) >= 0.05
    assert max(times["reference"]) < 0.2


def test_a_session_that_answers_a_batch_in_part_is_refused():
    with pytest.raises(LabError, match="in part"):
        answering.in_batches(lambda batch: np.zeros((4, 10)), np.zeros((20, 1, 28, 28), np.float32))


def test_a_file_for_onnx_runtime_is_asked_without_torch():
    """Its import would take longer than the exam, for each file."""
    program = (
        "import sys; from labkit.capstone import answering; answering._openers('onnxruntime'); "
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.parametrize("engine", ["onnxruntime", "openvino"])
def test_each_engine_takes_arrays_and_returns_the_answers_of_the_file(engine, tmp_path):
    if engine == "openvino":
        pytest.importorskip("openvino")
    onnx.save(ship_cheats.honest_file(), tmp_path / "honest.onnx")
    pictures = np.random.default_rng(0).normal(size=(3, 1, 28, 28)).astype(np.float32)
    session = onnxruntime.InferenceSession(tmp_path / "honest.onnx")
    [expected] = session.run(None, {session.get_inputs()[0].name: pictures})
    for opened in answering._openers(engine).values():
        answers = opened(tmp_path / "honest.onnx", "fp32")(pictures)
        assert isinstance(answers, np.ndarray)
        np.testing.assert_allclose(answers, expected, rtol=1e-4, atol=1e-4)


def dies(path, engine, **exam):
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.kills
def test_a_process_that_dies_is_said_in_words(tmp_path, monkeypatch):
    onnx.save(ship_cheats.honest_file(), tmp_path / "honest.onnx")
    monkeypatch.setattr(judge, "answer_exam", dies)
    [found] = score([Submission(tmp_path / "honest.onnx")], size=ExamSize(20, 20))
    assert found.refused
    assert found.reasons[0].startswith("Its process ended: ended by the system: Killed")


def test_a_copy_is_changed_and_every_picture_comes_twice():
    exam = draw_exam(100, seed=1)
    first, second = (np.flatnonzero(exam.order == each)[0] for each in (7, 107))
    assert np.array_equal(np.sort(exam.order), np.arange(200))
    assert exam.labels[first] == exam.labels[second]
    assert 0 < np.abs(exam.pictures[first] - exam.pictures[second]).mean() < 1
    assert not np.array_equal(draw_exam(100, seed=2).labels, exam.labels)


def test_a_medal_counts_p95_without_the_floor_and_the_points_count_whole_calls():
    facts = {"right": [True] * 20, "size_bytes": 100, "reference_bytes": 400}
    facts |= {
        "times": [1.5] * 20,
        "reference": [2.0] * 20,
        "again": [2.0] * 20,
        "floor": [1.0] * 20,
    }
    judged = judge._score_of("file", facts)
    assert judged.latency.median == pytest.approx(0.5)
    assert judged.points.median == pytest.approx((4 * 2.0 / 1.5) ** 0.5)


def test_the_empty_network_has_the_form_of_a_submission_and_reads_the_picture():
    model = answering.empty_network()
    gates.require_plain(model)
    assert {node.op_type for node in model.graph.node} == {"Flatten", "Slice"}
    session = onnxruntime.InferenceSession(model.SerializeToString())
    pictures = np.arange(2 * 784, dtype=np.float32).reshape(2, 1, 28, 28)
    assert np.array_equal(
        session.run(None, {"picture": pictures})[0], pictures.reshape(2, 784)[:, :10]
    )


def test_a_medal_takes_every_limit_and_the_reason_names_the_one_that_is_missed():
    gold, silver, bronze = MEDALS
    assert gold.accuracy >= silver.accuracy >= bronze.accuracy
    assert gold.latency <= silver.latency <= bronze.latency
    assert gold.size_bytes < silver.size_bytes < bronze.size_bytes
    exactly = ratio_of_p95([gold.latency] * 20, [1.0] * 20)
    assert medal_and_reasons(gold.accuracy, exactly, gold.size_bytes, noisy=False) == ("gold", ())
    medal, reasons = medal_and_reasons(gold.accuracy, exactly, gold.size_bytes + 1, noisy=False)
    assert medal == "silver"
    assert len(reasons) == 1 and "kB" in reasons[0]


def test_where_noise_could_decide_it_says_too_noisy():
    silver = MEDALS[1]
    chance = np.random.default_rng(0)
    times = [silver.latency * each for each in chance.uniform(0.5, 1.5, 40)]
    latency = ratio_of_p95(times, chance.uniform(0.5, 1.5, 40))
    medal, reasons = medal_and_reasons(silver.accuracy, latency, silver.size_bytes, noisy=True)
    assert medal is None
    assert "too noisy" in reasons[0]


@pytest.mark.parametrize(
    "text",
    [
        "<script>alert(1)</script>",
        "'; DROP TABLE submissions; --",
        "x" * 10_000_000,
        "\n\x00\x1b[31m",
        "",
        "é‮",
    ],
)
def test_any_name_becomes_one_short_line(text):
    found = one_line(text)
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
