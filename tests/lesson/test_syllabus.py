"""A new lesson, made from the template, keeps the rules of all lessons and runs as it is."""

import inspect
import runpy

import nbformat
import pytest
import test_notebooks
from claims_of import claims_of
from test_notebooks import code_cells

from labkit import ledger
from labkit.errors import LabError
from labkit.files import root
from labkit.lesson import claims, exercises, syllabus


def is_slow(rule):
    """Whether a rule grades in a fresh process, which does not know the folder of this new
    lesson.
    """
    return any(mark.name == "slow" for mark in rule.pytestmark)


RULES = [
    rule
    for name, rule in vars(test_notebooks).items()
    if name.startswith("test_")
    and list(inspect.signature(rule).parameters) == ["lesson"]
    and not is_slow(rule)
]


@pytest.fixture
def course(tmp_path, monkeypatch):
    """A course without lessons."""
    folder = tmp_path / "course"
    (folder / "notebooks").mkdir(parents=True)
    (folder / "notebooks" / "exercises").mkdir(parents=True)
    for name in ("trained", "fashion-mnist"):  # of the stand-in for the reader's own network
        (folder / "data").mkdir(exist_ok=True)
        (folder / "data" / name).symlink_to(root() / "data" / name)
    monkeypatch.setenv("LABKIT_ROOT", str(folder))
    monkeypatch.setattr(
        exercises, "__path__", [*exercises.__path__, str(folder / "notebooks" / "exercises")]
    )
    exercises.registry.cache_clear()
    yield folder
    exercises.registry.cache_clear()


def test_a_new_lesson_keeps_every_rule_and_runs_to_its_end(course, capsys, monkeypatch):
    notebook, *_ = syllabus.new_lesson("98", "making_tea")
    (lesson,) = syllabus.lessons()
    assert lesson.name == "98_making_tea"
    assert [task.id for task in lesson.exercises] == ["making-sum"]
    assert len(RULES) >= 8
    written = claims_of(code_cells(lesson))
    entries = {claim: claims.Entry(*words, "A reason.") for claim, words in written.items()}
    # as the author adds them
    monkeypatch.setattr(claims, "register", lambda: {lesson.slug: entries})
    for rule in RULES:
        rule(lesson)
    space = {}
    for cell in nbformat.read(notebook, as_version=4).cells:
        if cell.cell_type == "code":
            exec(cell.source.replace('"lab"', '"quick"'), space)
    assert ledger.load("answers")["verdict"].tolist() == ["unsolved"]
    # the machine may be busy
    assert ledger.load("claims")["verdict"].tolist() in (["holds"], ["inconclusive"])
    assert ledger.load("lesson_answers")["unit"].tolist() == ["x as fast"]
    assert len(ledger.load("completions")) == 1


def test_gaps_in_the_numbers_of_the_lessons_are_no_error(course):
    for number, name in (("98", "tea"), ("91", "water"), ("95", "leaves")):
        syllabus.new_lesson(number, name)
    assert [lesson.name for lesson in syllabus.lessons()] == ["91_water", "95_leaves", "98_tea"]


def test_the_exercise_of_a_new_lesson_accepts_right_answers_and_rejects_wrong_ones(course):
    *_, path = syllabus.new_lesson("98", "making_tea")
    task, answers = exercises.find("making-sum"), runpy.run_path(str(path))
    for answer in (task.reference, *answers["RIGHT"]["making-sum"].values()):
        task.verify(answer)
    for mistake in answers["WRONG"]["making-sum"].values():
        with pytest.raises(exercises.Wrong):
            task.verify(mistake)


@pytest.mark.parametrize(
    ("number", "name"), [("8", "tea"), ("08", "Making Tea"), ("08", "../tea"), ("08", "_tea")]
)
def test_an_odd_number_or_name_is_refused_with_an_example(course, number, name):
    with pytest.raises(LabError, match="two digits") as refused:
        syllabus.new_lesson(number, name)
    assert "labkit new-lesson" in refused.value.fix


def test_a_number_that_is_taken_is_refused(course):
    syllabus.new_lesson("98", "making_tea")
    with pytest.raises(LabError, match="98 already"):
        syllabus.new_lesson("98", "making_coffee")
