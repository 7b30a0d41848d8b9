"""The gates on numbers made by hand: what each refuses, in which words, and what it lets pass."""

import numpy as np
import pytest

from labkit.ship import gates
from labkit.ship._child import Refused
from labkit.ship.order import Exam


def asked(count, **columns):
    """How `count` pictures were asked: in batches of 16, half of them changed, nothing late, the last quarter alone."""
    usual = {
        "place": np.arange(count) % 16,
        "alone": np.arange(count) >= 3 * count // 4,
        "changed": np.arange(count) % 2 == 1,
        "late": np.zeros(count, bool),
    }
    return usual | columns


@pytest.fixture
def meant():
    return np.random.default_rng(0).normal(size=(640, 10)).astype(np.float32)


def test_answers_that_are_the_files_pass(meant):
    gates.require_meaning(meant, meant + 1e-3, asked(640))


@pytest.mark.parametrize(
    ("where", "says"),
    [
        (lambda how: how["place"] >= 4, "answered in part"),
        (lambda how: ~how["changed"], "from memory"),
        (lambda how: how["alone"], "Single pictures"),
        (lambda how: np.arange(640) > 240, "per call"),
        (lambda how: np.random.default_rng(1).random(640) < 0.5, "something else"),
    ],
)
def test_answers_that_are_wrong_somewhere_are_told_by_where(meant, where, says):
    how = asked(640)
    found = np.where(where(how)[:, None], -meant, meant)
    with pytest.raises(Refused, match=says):
        gates.require_meaning(meant, found, how)


def test_answers_that_change_after_they_were_handed_over_are_told_as_such(meant):
    with pytest.raises(Refused, match="synchronisation"):
        gates.require_meaning(meant, np.random.default_rng(1).permutation(meant), asked(640, late=np.ones(640, bool)))


@pytest.mark.parametrize(("value", "says"), [(1.0, "same whatever"), (np.nan, "not numbers")])
def test_a_constant_and_what_is_no_number_are_refused(meant, value, says):
    with pytest.raises(Refused, match=says):
        gates.require_meaning(meant, np.full_like(meant, value), asked(640))


def test_another_answer_to_the_same_picture_is_refused(meant):
    gates.require_steady(meant, meant)
    with pytest.raises(Refused, match="another answer"):
        gates.require_steady(meant, -meant)


def exam_of(count, seed=0):
    """An exam of `count` pictures and their copies, in random order; only what the gates look at."""
    order = np.random.default_rng(seed).permutation(2 * count)
    return Exam(None, None, order % count, order >= count)


def test_a_network_that_errs_on_its_own_pictures_passes():
    exam, chance = exam_of(500), np.random.default_rng(1)
    reference = chance.random(1000) < 0.93
    gates.require_unseen(chance.random(1000) < np.where(reference, 0.95, 0.3), reference, exam)


def test_one_that_knows_what_the_reference_gets_wrong_is_refused():
    with pytest.raises(Refused, match="labels of test images"):
        gates.require_unseen(np.ones(1000, bool), np.random.default_rng(1).random(1000) < 0.93, exam_of(500))


def test_one_that_knows_the_originals_only_is_refused():
    exam, chance = exam_of(500), np.random.default_rng(1)
    reference = chance.random(1000) < 0.97
    right = np.where(exam.changed, chance.random(1000) < 0.6, reference)
    with pytest.raises(Refused, match="stored in it"):
        gates.require_unseen(right, reference, exam)


def test_computing_more_than_was_timed_is_refused():
    gates.require_inside(1.5, 1.0)
    with pytest.raises(Refused, match="outside the timed region"):
        gates.require_inside(4.0, 1.0)


def test_waiting_more_than_the_reference_for_a_core_is_refused():
    quick, gives_way = [(1.0, 0.9)] * 100, [(1.0, 0.1)] * 100
    gates.require_ready(quick, quick)
    gates.require_ready(gives_way, gives_way)  # a busy machine: both wait
    with pytest.raises(Refused, match="waited for a core"):
        gates.require_ready(gives_way, quick)
