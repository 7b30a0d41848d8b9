"""The notebooks: clean, alike in shape, and running to their end with the reader's stubs and
with the solutions.
"""

import ast
import json
import os
import re
import statistics
import subprocess
import sys

import nbformat
import pytest
from claims_of import claims_of

from labkit import ledger
from labkit import lesson as words_of_lessons
from labkit.classroom import _grader, grading
from labkit.files import root
from labkit.ledger.rows import Completion, Run
from labkit.lesson import claims, exercises, syllabus

LESSONS = syllabus.lessons()
each_lesson = pytest.mark.parametrize("lesson", LESSONS, ids=lambda lesson: lesson.name)


def code_cells(lesson):
    return [
        cell for cell in nbformat.read(lesson.path, as_version=4).cells if cell.cell_type == "code"
    ]


def test_there_are_lessons():
    assert [lesson.name for lesson in LESSONS][:2] == [
        "00_start_here",
        "01_deployment_fundamentals",
    ]


@each_lesson
def test_a_notebook_is_valid_and_names_the_ordinary_kernel(lesson):
    notebook = nbformat.read(lesson.path, as_version=4)
    nbformat.validate(notebook)
    assert notebook.metadata.kernelspec.name == "python3"


@each_lesson
def test_a_notebook_is_committed_without_outputs(lesson):
    assert not any(cell.outputs or cell.execution_count for cell in code_cells(lesson))
    assert "papermill" not in json.dumps(nbformat.read(lesson.path, as_version=4).metadata)


@each_lesson
def test_exactly_one_cell_holds_the_parameters_profile_and_seed(lesson):
    (cell,) = [cell for cell in code_cells(lesson) if "parameters" in cell.metadata.get("tags", [])]
    assert re.search(r'^profile = "lab"', cell.source, flags=re.MULTILINE)
    assert re.search(r"^seed = 0$", cell.source, flags=re.MULTILINE)


@each_lesson
def test_a_notebook_says_whether_it_measures(lesson):
    assert isinstance(nbformat.read(lesson.path, as_version=4).metadata["labkit"]["measures"], bool)


@each_lesson
def test_every_name_that_a_lesson_imports_from_labkit_exists(lesson):
    trees = [
        ast.parse(re.sub("^[%!].*", "", cell.source, flags=re.MULTILINE))
        for cell in code_cells(lesson)
    ]
    imports = [
        node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)
    ]
    for node in (node for node in imports if node.module.partition(".")[0] == "labkit"):
        # also `from labkit.x import module`
        exec(compile(ast.Module([node], []), lesson.name, "exec"), {})


@each_lesson
def test_the_claims_of_a_lesson_are_those_of_the_register_with_their_bounds(lesson):
    entries = claims.register()[lesson.slug]
    assert claims_of(code_cells(lesson)) == {
        name: (claim.sentence, claim.bound) for name, claim in entries.items()
    }
    assert all(claim.why and claim.bound for claim in entries.values())


def test_the_register_names_no_lesson_that_is_gone():
    assert set(claims.register()) <= {lesson.slug for lesson in LESSONS}


def test_the_page_of_claims_shows_the_register_as_it_is():
    page = (root() / "docs" / "claims.md").read_text(encoding="utf-8")
    assert page == claims.as_page(), "labkit ledger claims --rules --out docs/claims.md"


@each_lesson
def test_cells_are_short(lesson):
    lengths = [len(cell.source.splitlines()) for cell in code_cells(lesson)]
    assert statistics.median(lengths) <= 13  # a claim has each of its bounds on a line of its own
    assert max(lengths) <= 25


@each_lesson
def test_a_lesson_starts_under_its_own_name_and_ends_with_the_recap(lesson):
    sources = [cell.source for cell in code_cells(lesson)]
    assert any(f'start("{lesson.name}", profile, seed)' in source for source in sources)
    assert sources[-1] == "recap()"


@each_lesson
def test_a_lesson_answers_its_question_once_and_claims_and_reveals_nothing_after_that(lesson):
    sources = [cell.source for cell in code_cells(lesson)]
    [answered] = [
        place
        for place, source in enumerate(sources)
        if re.search(r"^answer\(", source, flags=re.MULTILINE)
    ]
    later = "\n".join(sources[answered + 1 :])
    assert not re.search(r"^(predict|reveal|claim|exercise)\(", later, flags=re.MULTILINE)


@each_lesson
def test_the_answers_of_check_yourself_do_not_stand_open_in_the_source_of_its_cell(lesson):
    asking = [cell for cell in code_cells(lesson) if cell.source.startswith("check_yourself(")]
    assert all(cell.metadata.get("jupyter", {}).get("source_hidden") for cell in asking)


@each_lesson
def test_what_a_lesson_says_of_your_network_is_kept_in_a_cell_of_its_own(lesson):
    """The cells of Yours import no labkit: they are what a reader copies."""
    for cell in code_cells(lesson):
        if re.search(r"^keep_mine\(", cell.source, flags=re.MULTILINE):
            assert cell.source.startswith("keep_mine(")
        if re.search(r"^from mine import", cell.source, flags=re.MULTILINE):
            assert "labkit" not in cell.source


@each_lesson
def test_every_prediction_is_revealed_and_ids_are_unique(lesson):
    text = "\n".join(cell.source for cell in code_cells(lesson))
    asked = re.findall(r'predict\(\s*"([\w-]+)"', text)
    assert set(asked) == set(re.findall(r'reveal\(\s*"([\w-]+)"', text))
    claimed = re.findall(r'claim\(\s*"([\w-]+)"', text)
    assert len(set(asked)) == len(asked)
    assert len(set(claimed)) == len(claimed)
    assert asked
    assert claimed


@each_lesson
def test_an_exercise_is_announced_with_its_difficulty_and_minutes_and_its_cell_is_tagged(lesson):
    cells = nbformat.read(lesson.path, as_version=4).cells
    prose = "\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
    code = "\n".join(cell.source for cell in cells if cell.cell_type == "code")
    for task in lesson.exercises:
        dots = "●" * task.difficulty + "○" * (3 - task.difficulty)
        in_prose = f"**Exercise `{task.id}`** ({dots}, {task.minutes} min)" in prose
        assert in_prose or f'exercise("{task.id}").show()' in code
    tagged = [cell for cell in cells if "exercise" in cell.metadata.get("tags", [])]
    assert len(tagged) == len(lesson.exercises)
    assert all(exercises.ids_in(cell.source) or exercises.script_in(cell.source) for cell in tagged)
    assert all("your code" in cell.source for cell in tagged)


def prose_of(lesson):
    cells = nbformat.read(lesson.path, as_version=4).cells
    return "\n".join(cell.source for cell in cells if cell.cell_type == "markdown")


@each_lesson
def test_a_lesson_that_is_named_in_bold_is_a_link(lesson):
    assert re.findall(r"\*\*\d\d_\w+\*\*", prose_of(lesson)) == []


@each_lesson
def test_every_file_that_a_lesson_links_exists(lesson):
    links = re.findall(r"\]\((?!https?:)([^)#\s]+)[#)]", prose_of(lesson))
    assert [link for link in links if not (lesson.path.parent / link).is_file()] == []
    # a student reads a copy in another folder, which holds the lessons and nothing beside them
    beside = {path.name for path in lesson.path.parent.glob("*.ipynb")}
    assert [link for link in links if not link.startswith("../") and link not in beside] == []


@each_lesson
def test_prose_states_no_measured_result(lesson):
    prose = prose_of(lesson)
    assert (
        re.findall(
            r"\b\d+(?:\.\d+)? ?(?:x|times|%|percent) (?:faster|slower|smaller|larger|less)", prose
        )
        == []
    )


# A notebook costs up to a minute even in its quick profile, so each is run once: by papermill
# alone, from another folder, with every exercise as it is given. No number of such a run is read,
# so its measurements are brief; the cheapest is run in full below, as `make run` does it.
CHEAPEST = root() / "notebooks" / "01_deployment_fundamentals.ipynb"
# Papermill writes the whole notebook before and after each cell unless it is told not to.
PAPERMILL = [
    sys.executable,
    "-m",
    "papermill",
    "--no-request-save-on-cell-execute",
    "--no-progress-bar",
]


def papermill(*words, folder):
    """Run papermill's command line in a folder."""
    environment = {**os.environ, "PYTHONWARNINGS": "default"}
    return subprocess.run(
        [*PAPERMILL, *words], cwd=folder, env=environment, capture_output=True, text=True
    )


def words_of_pictures(notebook):
    """For each picture of an executed notebook, what it says in words; None where it says
    nothing.
    """
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    pictures = [output for output in outputs if "image/png" in output.get("data", {})]
    return [output.metadata.get("image/png", {}).get("alt") for output in pictures]


@each_lesson
@pytest.mark.course
@pytest.mark.timeout(1200)
def test_a_lesson_runs_to_its_end_by_papermill_alone_with_every_exercise_as_it_is_given(
    lesson, tmp_path, brief
):
    done = papermill(str(lesson.path), "out.ipynb", "-p", "profile", "quick", folder=tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    answers = ledger.load("answers")
    assert sorted(answers["exercise_id"]) == sorted(task.id for task in lesson.exercises)
    assert set(answers["verdict"]) == {"unsolved"}
    verdicts = ledger.load("predictions")["verdict"]
    assert set(verdicts.dropna()) == {"no answer"}  # none where a brief measurement gave no number
    [record] = ledger.find(Completion)
    ran = nbformat.read(tmp_path / "out.ipynb", as_version=4)
    assert record.cell_count == sum(
        cell.cell_type == "code" and bool(cell.source.strip()) for cell in ran.cells
    )
    assert not (tmp_path / "notebooks").exists()
    assert all(words_of_pictures(ran)), "a picture without words: labkit.plots.canvas"


@each_lesson
@pytest.mark.slow
def test_the_reference_answers_pass_in_the_exercise_cells_of_the_lesson(lesson, monkeypatch):
    """All in this process; that grading gives each answer one of its own: lesson/test_grading.py"""
    # the grader puts a word of its own in its place
    monkeypatch.setattr(words_of_lessons, "exercise", words_of_lessons.exercise)
    cells = grading.exercise_cells(lesson.path, solved=True)
    assert sorted(cells) == sorted(task.id for task in lesson.exercises)
    verdicts = {name: _grader.grade(lesson.name, name, *cell) for name, cell in cells.items()}
    assert set(verdicts.values()) <= {("passed", "")}, verdicts


SMALL = (
    'profile = "lab"\nseed = 0',
    'from labkit.lesson import recap, start\n\nlab = start("99_small", profile, seed)',
    'from labkit.lesson import exercise\n\nanswer = exercise("image-bytes").check(...)',
    "recap()",
)


@pytest.fixture
def small(tmp_path):
    """A notebook of four cells: for what asks whether another tool runs a lesson."""
    cells = list(map(nbformat.v4.new_code_cell, SMALL))
    cells[0].metadata["tags"] = ["parameters"]
    metadata = nbformat.read(LESSONS[0].path, as_version=4).metadata
    path = tmp_path / "99_small.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata=metadata), path)
    return path


@pytest.mark.slow
def test_the_engine_of_the_course_runs_a_lesson_for_everybody_and_proves_it(small, tmp_path):
    words = ["--engine", "labkit", str(small), "out.ipynb", "-p", "profile", "quick"]
    done = papermill(*words, folder=tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    about = nbformat.read(tmp_path / "out.ipynb", as_version=4).metadata
    assert [record.run_key for record in ledger.find(Completion)] == [about["labkit"]["run_key"]]
    assert str(root()) not in json.dumps(about), (
        "an executed notebook names no folder of this machine"
    )


@pytest.mark.course
def test_what_make_run_calls_runs_a_lesson_and_writes_the_report(own_artifacts):
    """`make run` calls it without naming a lesson: see the test of the Makefile."""
    environment = {**os.environ, "PYTHONWARNINGS": "default"}
    command = [sys.executable, "-m", "labkit.cli", "run", CHEAPEST.stem, "--profile", "quick"]
    done = subprocess.run(command, cwd=root(), env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "1 of 1 notebooks passed." in done.stdout
    assert set(ledger.load("answers")["verdict"]) == {"unsolved"}
    assert CHEAPEST.stem in (own_artifacts / "report.html").read_text(encoding="utf-8")
    assert (own_artifacts / "executed" / "quick" / CHEAPEST.name).exists()


@pytest.mark.slow
def test_an_ordinary_nbconvert_from_another_folder_runs_a_lesson(small, tmp_path):
    quick = small.read_text(encoding="utf-8").replace(r'"lab\"', r'"quick\"')
    small.write_text(quick, encoding="utf-8")
    words = [
        "--to",
        "notebook",
        "--execute",
        "--output-dir",
        str(tmp_path),
        "--output",
        "out.ipynb",
    ]
    done = subprocess.run(
        [sys.executable, "-m", "nbconvert", *words, str(small)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONWARNINGS": "default"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    [run] = ledger.find(Run)
    assert (run.profile, len(ledger.find(Completion))) == ("quick", 1)
