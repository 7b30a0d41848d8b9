"""What varies in answers: by hand, against plain loops, and each kind of output that a figure of
the whole hides.
"""

import numpy as np
import pytest

from labkit.export.variation import decibels, likeness

RANDOM = np.random.default_rng(0)


def test_a_copy_that_knows_nothing_about_the_input_has_no_decibels_however_large_the_mean_is():
    answers = np.array([299.9, 300.1] * 8)[:, None]
    assert likeness(answers, np.full((16, 1), 300.0)).lowest_db == pytest.approx(0, abs=1e-6)
    halfway = 300 + (answers - 300) / 2
    assert likeness(answers, halfway).lowest_db == pytest.approx(10 * np.log10(4))


@pytest.mark.parametrize("shape", [(50,), (50, 1)])
def test_one_column_is_judged_around_its_mean(shape):
    right = (300 + 0.08 * RANDOM.normal(size=shape)).astype(np.float32)
    constant = np.full(shape, 300, np.float32)
    assert likeness(right, constant).lowest_db < 1
    noisy = right + 0.008 * RANDOM.normal(size=shape).astype(np.float32)
    assert likeness(right, noisy).lowest_db == pytest.approx(20, abs=3)


def test_the_whole_output_equals_plain_loops():
    right = RANDOM.normal(size=(20, 3, 4)) + 5
    answers = right + 0.1 * RANDOM.normal(size=right.shape)
    signal = 0
    noise = 0
    for channel in range(3):
        for step in range(4):
            column = right[:, channel, step]
            for item in range(20):
                signal += (column[item] - sum(column) / 20) ** 2
                noise += (answers[item, channel, step] - column[item]) ** 2
    assert likeness(right, answers).db == pytest.approx(10 * np.log10(signal / noise))


@pytest.mark.parametrize(("axis", "shape"), [(1, (40, 5, 7)), (2, (40, 7, 5)), (3, (40, 6, 7, 5))])
def test_scores_beside_boxes_are_judged_on_the_axis_that_holds_them(axis, shape):
    size = np.array([640, 640, 640, 640, 1])  # four sides of a box, and a score
    right = RANDOM.random(shape) * size.reshape(
        [-1 if place == axis else 1 for place in range(len(shape))]
    )
    answers = right.copy()
    scores = (slice(None),) * axis + (4,)
    answers[scores] = 0.5
    alike = likeness(right, answers)
    assert alike.db > 50
    assert (alike.weakest.axis, alike.weakest.index, alike.weakest.count) == (axis, 4, 5)
    assert alike.lowest_db == pytest.approx(0, abs=0.5)
    assert f"at index 4 of 5 on axis {axis}" in str(alike)


def test_a_few_items_have_one_mean_for_each_channel():
    right = RANDOM.normal(size=(2, 3, 50)) + np.array([0, 100, 0])[:, None]
    answers = right.copy()
    answers[:, 1] = 100
    alike = likeness(right, answers)
    assert (alike.weakest.axis, alike.weakest.index) == (1, 1)
    assert alike.lowest_db == pytest.approx(0, abs=0.2)


def test_a_constant_answer_has_to_be_near_its_size_and_fails_nothing_else():
    right = RANDOM.normal(size=(30, 4))
    right[:, 2] = 7
    answers = right + 0.001 * RANDOM.normal(size=right.shape)
    assert likeness(right, answers).lowest_db > 50
    answers[:, 2] = 8  # 10 log10(7^2 / 1^2) = 16.9
    assert likeness(right, answers).lowest_db == pytest.approx(16.9, abs=0.1)
    everything = np.full((30, 4), 7.0)
    assert likeness(everything, everything).lowest_db == np.inf
    assert likeness(everything, everything + 1).lowest_db == pytest.approx(16.9, abs=0.1)
    zeros = np.zeros((30, 4))
    assert likeness(zeros, zeros).lowest_db == np.inf
    assert likeness(zeros, zeros + 1).lowest_db == -np.inf


def test_a_feature_of_two_items_does_not_decide():
    right = RANDOM.normal(size=(256, 10))
    right[:, 3] = 0
    right[:2, 3] = 1e-3
    answers = right.copy()
    answers[:, 3] = 0
    assert likeness(right, answers).lowest_db > 60


def test_of_a_thousand_classes_a_destroyed_one_is_seen_and_one_that_hardly_varies_decides_nothing():
    right = RANDOM.normal(size=(100, 1000))
    right[:, 7] *= 0.01
    # the hundredth of the power of a usual class
    answers = right + 0.1 * RANDOM.normal(size=right.shape)
    assert likeness(right, answers).lowest_db == pytest.approx(20, abs=0.5)  # of the whole
    assert likeness(right[:, :10], answers[:, :10]).lowest_db == pytest.approx(-20, abs=2)
    answers[:, 3] = 0
    alike = likeness(right, answers)
    assert alike.weakest.index == 3
    assert alike.lowest_db == pytest.approx(
        10 * np.log10(2 * np.log(1000) - np.log(np.pi * np.log(1000))), abs=1
    )


def test_answers_that_are_not_finite_are_infinitely_wrong_and_equal_infinities_are_equal():
    right = RANDOM.normal(size=(20, 3))
    right[:, 1] = -np.inf  # a mask
    assert likeness(right, right.copy()).lowest_db == np.inf
    for wrong in (np.nan, np.inf):
        answers = right.copy()
        answers[0, 0] = wrong
        assert likeness(right, answers).lowest_db == -np.inf


def test_nothing_at_all_is_alike():
    assert likeness(np.zeros((0, 3)), np.zeros((0, 3))).lowest_db == np.inf


@pytest.mark.parametrize(
    ("db", "text"),
    [
        (14.96, "14.9 dB"),
        (15.0, "15.0 dB"),
        (-0.04, "-0.1 dB"),
        (np.inf, "inf dB"),
        (0.3, "0.3 dB"),
    ],
)
def test_a_figure_below_a_limit_does_not_read_as_if_it_reached_it(db, text):
    assert decibels(db) == text
