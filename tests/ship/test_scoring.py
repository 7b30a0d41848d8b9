"""Scoring for real: an honest file, every cheat, every hostile submission, side by side in two processes that score."""

import re

import numpy as np
import onnx
import pytest
import ship_cheats

from labkit.errors import LabError
from labkit.files import root
from labkit.ship import Submission, score
from labkit.ship.order import LEVELS, Plan, draw_exam
from labkit.ship.scoring import _medal, ratio_of_p95
from labkit.ship.submission import copied, plain

SMALL = Plan(images=250, rounds=140)
SEED = 1  # so few pictures are, about once in 250 draws, so easy that a memory of them shows in nothing
TEST_IMAGES = root() / "data" / "fashion-mnist" / "t10k-images-idx3-ubyte.gz"


def scored(made, **settings):
    """{name: (Score, what its reason must hold)} of what `ship_cheats` made."""
    submissions = [Submission(path, engine, name) for name, (path, engine, _) in made.items()]
    found = score(submissions, seed=SEED, **settings)
    return {name: (each, says) for (name, (_, _, says)), each in zip(made.items(), found, strict=True)}


@pytest.fixture(scope="module")
def cheated(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cheats")
    onnx.save(ship_cheats.honest_file(), folder / "honest.onnx")
    honest = {"honest": (folder / "honest.onnx", "onnxruntime", "")}
    return scored(honest | ship_cheats.cheats(folder), plan=SMALL, make_s=20)


@pytest.mark.kills
def test_an_honest_linear_classifier_is_scored_and_not_refused(cheated):
    found, _ = cheated["honest"]
    assert not found.refused
    assert 0.5 < found.accuracy.median < 0.8
    assert found.latency.low <= found.latency.median <= found.latency.high < 1
    assert found.points.median > 3


@pytest.mark.kills
@pytest.mark.parametrize("name", [*ship_cheats.FILES, *ship_cheats.SERVES, "answers known before"])
def test_a_cheat_gets_no_medal_and_the_reason(cheated, name):
    found, says = cheated[name]
    assert found.medal is None
    assert re.search(says, " ".join(found.reasons)), found.reasons
    assert found.refused or not says


def latency_of(cheated, name):
    """How long it took, unless this machine was too busy to tell."""
    found, _ = cheated[name]
    if found.refused and "waited for a core" in found.reasons[0]:
        pytest.skip(found.reasons[0])
    return found.latency


@pytest.mark.kills
def test_a_submission_has_no_use_for_a_clock_of_its_own(cheated):
    assert latency_of(cheated, "its own clock").low > 2 * latency_of(cheated, "honest").high


@pytest.mark.kills
def test_there_is_nothing_to_remember_while_it_is_timed(cheated):
    plain, remembering = (latency_of(cheated, name) for name in ("its own clock", "pictures that it remembers"))
    assert remembering.median > 0.67 * plain.median  # with pictures asked before, it would be a tenth


@pytest.mark.kills
def test_the_medal_counts_the_changed_copies_alone(cheated):
    facts = cheated["honest"][0].facts
    assert cheated["honest"][0].accuracy.median == np.mean(facts["right"]) < np.mean(facts["right_before"])
    assert len(facts["right"]) == SMALL.images


@pytest.mark.kills
def test_a_score_says_what_confined_the_submissions(cheated):
    assert {"limits", "audit hook"} <= set(cheated["honest"][0].facts["in_force"])


@pytest.mark.kills
def test_hostile_submissions_do_no_harm_and_get_the_reason(tmp_path):
    found = scored(ship_cheats.hostile(tmp_path, test_images=TEST_IMAGES), plan=Plan(images=20, rounds=20), make_s=3)
    assert len(found) >= 20
    for name, (each, says) in found.items():
        assert each.refused and each.medal is None, name
        assert re.search(says, each.reasons[0]), (name, each.reasons)
    assert not (tmp_path / "out").exists()
    assert (tmp_path / "kept").read_text(encoding="utf-8") == "kept"


def test_a_copy_is_changed_and_every_picture_comes_twice():
    exam = draw_exam(100, seed=1)
    first, second = (np.flatnonzero((exam.origin == 7) & (exam.changed == changed))[0] for changed in (False, True))
    assert np.array_equal(np.bincount(exam.origin), np.full(100, 2))
    assert exam.labels[first] == exam.labels[second]
    assert 0 < np.abs(exam.pictures[first] - exam.pictures[second]).mean() < 1
    assert not np.array_equal(draw_exam(100, seed=2).labels, exam.labels)


def test_a_ratio_of_percentiles_is_that_of_the_samples():
    slow = [(0, 2.0 + 0.01 * (place % 7)) for place in range(200)]
    fast = [(0, each / 4) for _, each in slow]
    low, high = found = ratio_of_p95(fast, slow)
    assert found.median == pytest.approx(0.25)
    assert low <= found.median <= high
    assert high - low < 0.02


def test_a_medal_takes_every_limit_and_the_reason_names_the_one_that_is_missed():
    gold, silver, bronze = LEVELS
    assert gold.accuracy >= silver.accuracy >= bronze.accuracy
    assert gold.latency <= silver.latency <= bronze.latency
    assert gold.size_bytes < silver.size_bytes < bronze.size_bytes
    exactly = ratio_of_p95([(0, gold.latency)] * 20, [(0, 1.0)] * 20)
    assert _medal(gold.accuracy, exactly, gold.size_bytes, False) == ("gold", [])
    medal, reasons = _medal(gold.accuracy, exactly, gold.size_bytes + 1, False)
    assert medal == "silver"
    assert len(reasons) == 1 and "kB" in reasons[0]


def test_where_noise_could_decide_it_says_too_noisy():
    silver = LEVELS[1]
    chance = np.random.default_rng(0)
    times = [(0, silver.latency * each) for each in chance.uniform(0.5, 1.5, 40)]
    latency = ratio_of_p95(times, [(0, each) for each in chance.uniform(0.5, 1.5, 40)])
    medal, reasons = _medal(silver.accuracy, latency, silver.size_bytes, True)
    assert medal is None
    assert "too noisy" in reasons[0]


@pytest.mark.parametrize(
    "text", ["<script>alert(1)</script>", "'; DROP TABLE submissions; --", "x" * 10_000_000, "\n\x00\x1b[31m", "", "é‮"]
)
def test_any_name_becomes_one_short_line(text):
    found = plain(text)
    assert 1 <= len(found) <= 60
    assert found.isprintable()


def test_what_is_no_file_or_has_no_engine_is_refused_before_anything_starts(tmp_path):
    with pytest.raises(LabError, match="nothing to score"):
        score([Submission(tmp_path / "missing.onnx", "onnxruntime")])
    (tmp_path / "some.onnx").write_bytes(b"x")
    with pytest.raises(LabError, match="needs an engine"):
        score([Submission(tmp_path / "some.onnx")])
    (tmp_path / "link").symlink_to(tmp_path / "some.onnx")
    with pytest.raises(OSError):
        copied(tmp_path / "link", tmp_path / "copy")
