"""The gates on numbers made by hand: what each refuses, in which words, and what it lets pass."""

import numpy as np
import pytest

from labkit.capstone import gates
from labkit.capstone.exam import Exam
from labkit.errors import LabError


@pytest.fixture
def meant():
    return np.random.default_rng(0).normal(size=(640, 10)).astype(np.float32)


def test_answers_that_are_the_files_pass(meant):
    gates.require_as_written(meant, meant + 1e-3)


def test_answers_that_are_something_else_are_refused(meant):
    with pytest.raises(LabError, match="something else"):
        gates.require_as_written(meant, np.random.default_rng(1).permutation(meant))


def test_a_few_wrong_rows_are_refused_though_the_parity_is_high(meant):
    loud = meant.copy()
    loud[:100] *= 1000
    found = loud.copy()
    found[100:120] *= -1
    with pytest.raises(LabError, match="something else"):
        gates.require_as_written(loud, found)


@pytest.mark.parametrize(("value", "says"), [(1.0, "same whatever"), (np.nan, "not numbers")])
def test_a_constant_and_what_is_no_number_are_refused(meant, value, says):
    with pytest.raises(LabError, match=says):
        gates.require_as_written(meant, np.full_like(meant, value))


def test_an_infinite_answer_is_refused_before_anything_is_computed_from_it(meant):
    infinite = np.full_like(meant, np.inf)
    for as_written, engine_answers in ((meant, infinite), (infinite, meant)):
        with pytest.raises(LabError, match="not numbers"):
            gates.require_as_written(as_written, engine_answers)
    with pytest.raises(LabError, match="not numbers"):
        gates.require_steady(infinite, infinite)


def test_another_answer_to_the_same_picture_is_refused(meant):
    gates.require_steady(meant, meant)
    with pytest.raises(LabError, match="another answer"):
        gates.require_steady(meant, -meant)


def exam_of(count, seed=0):
    """An exam of `count` pictures and their copies, in random order; only what the gates look
    at.
    """
    order = np.random.default_rng(seed).permutation(2 * count)
    return Exam(None, None, order)


def test_a_network_that_errs_on_its_own_pictures_passes():
    exam, chance = exam_of(500), np.random.default_rng(1)
    reference = chance.random(1000) < 0.93
    gates.require_unseen(chance.random(1000) < np.where(reference, 0.95, 0.3), reference, exam)


def test_one_that_knows_what_the_reference_gets_wrong_is_refused():
    with pytest.raises(LabError, match="labels of test images"):
        gates.require_unseen(
            np.ones(1000, bool), np.random.default_rng(1).random(1000) < 0.93, exam_of(500)
        )


def test_one_that_knows_the_originals_only_is_refused():
    exam, chance = exam_of(500), np.random.default_rng(1)
    reference = chance.random(1000) < 0.97
    right = np.where(exam.order >= 500, chance.random(1000) < 0.6, reference)
    with pytest.raises(LabError, match="that stores answers"):
        gates.require_unseen(right, reference, exam)
