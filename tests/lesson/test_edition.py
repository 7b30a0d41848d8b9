"""The student edition: the whole course, in which an exercise lends results, and no file shows its solution."""

import inspect
import os
import re
import subprocess
import sys

import nbformat
import pytest
from test_cli import call

from labkit import ledger
from labkit.errors import LabError
from labkit.files import root
from labkit.ledger.rows import Completion
from labkit.lesson import edition, exercises

LENDS = """
import inspect, sys
from labkit.lesson import exercises
from labkit.lesson import _exercise
_exercise.LONGEST_S = 600  # on a busy machine
assert exercises.__file__.startswith(sys.argv[1]), exercises.__file__
for name, task in exercises.registry().items():
    assert task.solution is None, name
    try:
        inspect.getsource(task.verify)
    except OSError:
        pass
    else:
        sys.exit(f"{name} shows its checks")
    found = ("passed", "") if name in sys.argv[2:] else _exercise.verdict_on(lambda: task.reference, task.verify)
    assert found == ("passed", ""), (name, found)
print("all lend")
"""
NEEDS_SOURCE = ("fused-kernel",)  # Triton compiles a kernel from its text


@pytest.fixture(scope="module")
def folder(once):
    """The student edition, written once."""
    return once("student-edition", lambda place: edition.release(place / "course")) / "course"


def python(folder, *words):
    """Run Python with the labkit of the student edition."""
    path = os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = os.environ | {"PYTHONPATH": path, "LABKIT_ROOT": str(folder), "PYTHONWARNINGS": "default"}
    return subprocess.run([sys.executable, *words], cwd=folder, env=environment, capture_output=True, text=True)


def test_the_student_edition_has_every_lesson_and_no_line_of_a_solution(folder):
    assert [path.name for path in sorted((folder / "notebooks").glob("*.ipynb"))] == [
        path.name for path in sorted((root() / "notebooks").glob("*.ipynb"))
    ]
    texts = "\n".join(path.read_text(encoding="utf-8") for path in (folder / "labkit" / "lesson").rglob("*.py"))
    for task in exercises.registry().values():
        given = inspect.getsource(task.reference) if callable(task.reference) else f"\n{task.reference}"
        lines = [line.strip() for line in given.splitlines()[1:]]
        assert not [line for line in lines if len(line) > 40 and line in texts], task.id
    assert not (folder / "tests").exists()
    assert not (folder / ".git").exists()
    assert re.search(r"Student edition.* made of commit \w+", (folder / "README.md").read_text(encoding="utf-8"))


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_every_exercise_of_the_student_edition_lends_what_passes_its_check(folder):
    done = python(folder, "-c", LENDS, str(folder), *NEEDS_SOURCE)
    assert done.stdout == "all lend\n", done.stderr[-2000:]


@pytest.mark.slow
def test_the_student_edition_cannot_fill_in_solutions_and_says_so(folder):
    fill = "from labkit.lesson import exercises; exercises.fill('f = exercise(\"is-real\").check(f)')"
    assert "has no solutions to fill in" in python(folder, "-c", fill).stderr
    ask = "from labkit.lesson import exercise; exercise('is-real').solution()"
    assert "no solutions" in python(folder, "-c", ask).stdout


@pytest.mark.course
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("lesson", ["00_start_here", "03_comparing_trainings"])  # later cells use what is lent
def test_a_lesson_of_the_student_edition_runs_to_its_end(lesson, folder, tmp_path, brief):
    words = ("-m", "papermill", "--no-request-save-on-cell-execute", "--no-progress-bar", "-p", "profile", "quick")
    notebook = folder / "notebooks" / f"{lesson}.ipynb"
    done = python(folder, *words, str(notebook), str(tmp_path / "out.ipynb"))
    assert done.returncode == 0, done.stderr[-3000:]
    assert [record.notebook for record in ledger.find(Completion)] == [lesson]
    assert set(ledger.load("answers")["verdict"]) == {"unsolved"}
    page = nbformat.read(tmp_path / "out.ipynb", as_version=4)
    assert "Another solution" not in str(page.cells)


def test_a_folder_that_is_there_is_left_alone_and_a_course_without_git_is_refused(tmp_path, monkeypatch):
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
