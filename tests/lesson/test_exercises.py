"""Each exercise accepts its reference, rejects plausible mistakes, and can be filled into a
notebook cell.
"""

import importlib
import math
import re

import numpy as np
import pytest
import torch

from labkit.errors import LabError, LessonError
from labkit.lesson import exercises
from labkit.lesson._exercise import verdict_on
from labkit.lesson.exercises import Exercise, Wrong, untouched

ALL = exercises.registry()
STARTS_PROCESSES = {"ddp-script"}
ANSWERS = [importlib.import_module(f"answers.{lesson}") for lesson in exercises.modules()]
WRONG = {task: answers for module in ANSWERS for task, answers in module.WRONG.items()}
RIGHT = {task: answers for module in ANSWERS for task, answers in module.RIGHT.items()}


def cases(answers):
    """Parameters (exercise, name of the answer) of answers.

    Of an exercise that starts processes, which takes ten seconds, the first two; all in a release.
    """
    return [
        pytest.param(
            task,
            name,
            id=f"{task}-{name}",
            marks=[pytest.mark.release] if task in STARTS_PROCESSES and number > 1 else [],
        )
        for task, of_task in answers.items()
        for number, name in enumerate(of_task)
    ]


@pytest.mark.parametrize("name", ALL)
def test_the_reference_passes_and_changes_nothing_global(name):
    assert verdict_on(lambda: ALL[name].reference, ALL[name].verify) == ("passed", "")


@pytest.mark.parametrize(("name", "mistake"), cases(WRONG))
def test_a_plausible_mistake_is_rejected_with_words_that_help(name, mistake):
    with pytest.raises(Wrong) as caught:
        ALL[name].verify(WRONG[name][mistake])
    assert len(str(caught.value)) > 20


@pytest.mark.parametrize("lesson", exercises.modules())
def test_a_message_that_asks_for_an_array_or_a_tensor_names_the_library(lesson):
    source = (exercises.folder() / f"{lesson}.py").read_text(encoding="utf-8")
    asked = re.findall(r"[Ee]xpected (?:[^\"]* )?(an array|a tensor)", source)
    assert not asked, "say: a NumPy array, a torch tensor"


@pytest.mark.parametrize(("name", "other"), cases(RIGHT))
def test_a_right_answer_written_differently_passes(name, other):
    assert verdict_on(lambda: RIGHT[name][other], ALL[name].verify) == ("passed", "")


@pytest.mark.parametrize("name", ALL)
def test_each_has_four_wrong_answers_two_right_ones_a_hint_a_difficulty_and_minutes(name):
    task = ALL[name]
    assert len(WRONG[name]) >= 4
    assert len(RIGHT[name]) >= 2
    assert task.difficulty in (1, 2, 3)
    assert 1 <= task.minutes <= 60
    assert task.hint
    assert task.task


def test_filling_replaces_the_stub_and_keeps_the_check():
    cell = (
        "def image_bytes(images):\n    ...  # your code\n\nimage_bytes = "
        'exercise("image-bytes").check(image_bytes)'
    )
    filled = exercises.fill(cell)
    assert "your code" not in filled
    assert filled.startswith("def image_bytes(")
    assert filled.endswith('image_bytes = exercise("image-bytes").check(image_bytes)')


def test_filling_leaves_other_cells_alone():
    assert exercises.fill("x = 1\nprint(x)") == "x = 1\nprint(x)"


def test_a_plain_value_is_filled_as_an_assignment():
    task = Exercise(
        id="best-batch",
        task="",
        difficulty=1,
        minutes=1,
        hint="",
        reference=64,
        verify=lambda answer: None,
    )
    assert task.solution == "best_batch = 64"


def test_an_unknown_exercise_is_refused():
    with pytest.raises(LabError, match="no exercise 'nothing'"):
        exercises.find("nothing")


def test_no_two_exercises_of_the_course_have_the_same_id():
    ids = [
        task.id for module in exercises.modules() for task in exercises.of(module.removeprefix("l"))
    ]
    assert len(set(ids)) == len(ids)


def test_labkit_without_the_folder_of_the_course_says_that_it_has_no_exercises(monkeypatch):
    monkeypatch.setattr(
        exercises, "__path__", [path for path in exercises.__path__ if "notebooks" not in path]
    )
    with pytest.raises(
        LessonError, match=r"no exercises here[\s\S]*a wheel of labkit brings no lessons"
    ):
        exercises.find("is-real")


def test_an_answer_that_changes_its_input_is_refused_and_one_that_meets_nan_is_not():
    def grows(x):
        x.unsqueeze_(0)  # the same numbers in another shape
        return x

    with pytest.raises(Wrong, match="changes its input"):
        untouched(grows)(torch.ones(3))
    with pytest.raises(Wrong, match="changes its input"):
        untouched(lambda x: x.mul_(2))(torch.ones(3))
    with_nan = torch.tensor([1.0, math.nan])
    assert untouched(torch.sum)(with_nan).isnan()
    assert untouched(np.sum)(np.array([1, 2])) == 3
