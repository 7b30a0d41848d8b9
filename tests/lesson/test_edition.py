"""The student edition: the whole course without answers; an exercise that is not solved ends
with its hint.
"""

import importlib
import inspect
import os
import re
import subprocess
import sys

import nbformat
import pytest
from test_cli import call

from labkit import ledger
from labkit.classroom import edition
from labkit.errors import LabError
from labkit.files import root
from labkit.ledger.rows import Completion
from labkit.lesson import _exercise, exercises

BEGIN = "from labkit.lesson import exercise, start; start('03_what_limits_speed', 'quick')"
MADE_UP = """
from functools import lru_cache

from labkit.lesson.exercises import Exercise, expect

LIMIT = 3
_FACTOR = 2


# how it is done
@lru_cache
def double(x):
    return _twice(x)


def _twice(x):
    return _FACTOR * x


def thrice(x):
    return 3 * x


def _slip(answer):
    return thrice(1) == answer(1)


def verify_double(answer):
    expect(answer(LIMIT) == 6, "Twice three is six.")


def verify_thrice(answer):
    expect(_slip(answer), "Three times one is three.")


EXERCISES = (
    Exercise(
        id="a", task="", difficulty=1, minutes=1, hint="",
        reference=double,
        imports="import math",
        verify=verify_double,
    ),
    Exercise(
        id="b", task="", difficulty=1, minutes=1, hint="",
        reference=thrice,
        verify=verify_thrice,
    ),
)
"""


@pytest.fixture(scope="module")
def folder(once):
    """The student edition, written once."""
    return once("student-edition", lambda place: edition.release(place / "course")) / "course"


def python(folder, *words):
    """Run Python with the labkit of the student edition."""
    path = os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = os.environ | {
        "PYTHONPATH": path,
        "LABKIT_ROOT": str(folder),
        "PYTHONWARNINGS": "default",
    }
    return subprocess.run(
        [sys.executable, *words], cwd=folder, env=environment, capture_output=True, text=True
    )


def test_the_student_edition_has_every_lesson_and_no_line_of_a_solution(folder):
    assert [path.name for path in sorted((folder / "notebooks").glob("*.ipynb"))] == [
        path.name for path in sorted((root() / "notebooks").glob("*.ipynb"))
    ]
    texts = "\n".join(
        path.read_text(encoding="utf-8") for path in (folder / "labkit" / "lesson").rglob("*.py")
    )
    for task in exercises.registry().values():
        given = (
            inspect.getsource(task.reference) if callable(task.reference) else f"\n{task.reference}"
        )
        lines = [line.strip() for line in given.splitlines()[1:]]
        assert not [line for line in lines if len(line) > 40 and line in texts], task.id
    assert not (folder / "tests").exists()
    assert not (folder / ".git").exists()
    assert re.search(
        r"Student edition.* made of commit \w+", (folder / "README.md").read_text(encoding="utf-8")
    )


def tasks_of(folder, lesson):
    """The exercises of a lesson as the student edition has them."""
    place = folder / "notebooks" / "exercises" / f"{lesson}.py"
    spec = importlib.util.spec_from_file_location(f"student_{lesson}", place)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.EXERCISES


# every check once more, as tests/lesson/test_exercises.py has it for the course itself
@pytest.mark.release
@pytest.mark.timeout(900)
def test_the_checks_that_do_without_the_reference_judge_in_the_student_edition_too(
    folder, monkeypatch
):
    monkeypatch.setattr(_exercise, "LONGEST_S", 600)  # on a busy machine
    checked, unchecked = [], []
    for lesson in exercises.modules():
        answers = importlib.import_module(f"answers.{lesson}")
        for task in tasks_of(folder, lesson):
            assert task.reference is task.solution is None
            right, wrong = (
                {
                    _exercise.verdict_on(lambda answer=answer: answer, task.verify)[0]
                    for answer in written.values()
                }
                for written in (answers.RIGHT[task.id], answers.WRONG[task.id])
            )
            if (right, wrong) == ({"passed"}, {"wrong"}):
                checked.append(task.id)
            elif right == wrong == {"not checked"}:
                unchecked.append(task.id)
    assert sorted(checked + unchecked) == sorted(exercises.registry())
    assert len(checked) > len(unchecked)


def test_a_check_that_computes_with_an_answer_goes_and_so_does_what_only_answers_use(tmp_path):
    (tmp_path / "made_up.py").write_text(edition.without_answers(MADE_UP), encoding="utf-8")
    source = (tmp_path / "made_up.py").read_text(encoding="utf-8")
    assert "LIMIT = 3" in source
    for word in (
        "def double",
        "_twice",
        "how it is done",
        "thrice",
        "_slip",
        "@lru_cache",
        "_FACTOR",
    ):
        assert word not in source.split("EXERCISES")[0], word
    space = {}
    exec(source, space)
    first, second = space["EXERCISES"]
    first.verify(lambda x: 2 * x)
    with pytest.raises(exercises.Wrong):
        first.verify(lambda x: x)
    with pytest.raises(exercises.NotChecked):
        second.verify(lambda x: 3 * x)
    assert (first.reference, first.imports, second.reference) == (None, "", None)


def test_an_untouched_exercise_of_the_student_edition_ends_its_cell_with_the_hint(folder):
    done = python(folder, "-c", f"{BEGIN}; print('begun'); exercise('image-bytes').check(...)")
    assert done.returncode == 1
    assert "begun" in done.stdout
    assert "is not solved yet" in done.stderr
    assert exercises.find("image-bytes").hint[:40] in done.stderr
    assert "reference answer is used below" not in done.stdout


FIRST_UNCHECKED = """
from labkit.lesson import exercises
unchecked = (name for name, task in exercises.registry().items() if task.verify is exercises.checked_when_handed_in)
print(exercise(next(unchecked)).check(lambda anything: 7)(None))
"""


def test_an_answer_that_is_not_checked_there_is_used_and_recorded_as_such(folder):
    done = python(folder, "-c", BEGIN + FIRST_UNCHECKED)
    assert done.stdout.splitlines()[-1] == "7", done.stderr
    assert "when you hand the lesson in" in done.stdout
    assert list(ledger.load("answers")["verdict"]) == ["not checked"]


@pytest.mark.slow
def test_the_student_edition_cannot_fill_in_solutions_and_says_so(folder):
    ask = (
        "from labkit.lesson import exercise, exercises; exercise('is-real').solution(); "
        "exercises.fill('f = exercise(\"is-real\").check(f)')"
    )
    done = python(folder, "-c", ask)
    assert "no solutions" in done.stdout
    assert "has no solutions to fill in" in done.stderr


def papermill(folder, notebook, output):
    words = (
        "-m",
        "papermill",
        "--no-request-save-on-cell-execute",
        "--no-progress-bar",
        "-p",
        "profile",
        "quick",
    )
    return python(folder, *words, str(notebook), str(output))


@pytest.mark.release
@pytest.mark.course
@pytest.mark.timeout(1200)
def test_a_lesson_of_the_student_edition_stops_at_an_untouched_exercise_and_runs_to_its_end_when_solved(
    folder, tmp_path, brief
):
    lesson = folder / "notebooks" / "03_what_limits_speed.ipynb"
    done = papermill(folder, lesson, tmp_path / "out.ipynb")
    assert done.returncode == 1
    assert "is not solved yet" in done.stderr
    assert ledger.find(Completion) == []

    solved = nbformat.read(lesson, as_version=4)
    for cell in solved.cells:
        cell.source = exercises.fill(cell.source) if cell.cell_type == "code" else cell.source
    nbformat.write(solved, tmp_path / lesson.name)
    done = papermill(folder, tmp_path / lesson.name, tmp_path / "out.ipynb")
    assert done.returncode == 0, done.stderr[-3000:]
    assert [record.notebook for record in ledger.find(Completion)] == ["03_what_limits_speed"]
    # the first run counts as well
    assert set(ledger.load("answers")["verdict"]) == {"passed", "unsolved"}
    page = nbformat.read(tmp_path / "out.ipynb", as_version=4)
    assert "Another solution" not in str(page.cells)


def test_a_folder_that_is_there_is_left_alone_and_a_course_without_git_is_refused(
    tmp_path, monkeypatch
):
    with pytest.raises(LabError, match="is there already"):
        edition.release(tmp_path)
    assert not list(tmp_path.iterdir())
    monkeypatch.setenv("LABKIT_ROOT", str(tmp_path))
    with pytest.raises(LabError, match="a checkout of git"):
        edition.release(tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_the_command_writes_the_edition_and_says_where(tmp_path, monkeypatch):
    monkeypatch.setattr(edition, "release", lambda folder: folder / "written")
    assert call("release", str(tmp_path)).strip() == str(tmp_path / "written")
