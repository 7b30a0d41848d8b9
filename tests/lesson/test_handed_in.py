"""Grading a class: everybody is judged, whatever the others hand in, and the table says why."""

import csv

import pytest
from made_up_class import write_class
from test_cli import call

from labkit.lesson import exercises, grading, handed_in

SOME = ("ada", "di", "fay", "kim", "ned", "pam", "tim", "yan", "zoe", "cleo", "don")
ENDLESS = ("hal", "ida", "jo", "ray")
SHORTER = (
    "from labkit.lesson import _exercise, _grader\n_exercise.LONGEST_S = 1\n"
    "_grader.COMPUTING_S, _grader.WAITING_S = 2, 15\n_grader.main()"
)


def table_of(folder):
    """{(student, exercise): the row of grades.csv}."""
    with (folder / "grades.csv").open(newline="") as file:
        return {(row["student"], row["exercise"]): row for row in csv.DictReader(file)}


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_everybody_in_a_class_is_judged_and_the_table_says_why(tmp_path):
    expected = write_class(tmp_path, SOME)
    output = call("grade", str(tmp_path))
    assert "yan: 3 of 6 points; 2 missing, 2 passed" in output
    rows = table_of(tmp_path)
    assert len(rows) == 4 * len(SOME)
    for about, row in rows.items():
        verdict, words = expected.get(about, ("passed", ""))
        assert (row["verdict"], words in row["reason"]) == (verdict, True), (about, row)
        right = exercises.find(about[1]).difficulty
        assert row["points"] == {"passed": str(right), "not graded": ""}.get(verdict, "0")
    page = (tmp_path / "grades.html").read_text(encoding="utf-8")
    assert "with the rights of the account" in page
    assert "docker run --rm --network none" in page
    assert "return images * height * width\n" in page, "the answers stand on the page"


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_answers_that_never_end_are_ended_and_are_wrong(tmp_path, monkeypatch):
    monkeypatch.setattr(grading, "GRADER", SHORTER)
    write_class(tmp_path, ENDLESS)
    call("grade", str(tmp_path))
    rows = table_of(tmp_path)
    for student in ENDLESS:
        row = rows[student, "image-bytes"]
        assert (row["verdict"], "had not finished" in row["reason"]) == ("wrong", True), row


def test_what_a_student_writes_is_text_on_the_page(tmp_path):
    bad = "<script>alert(1)</script>"
    mark = handed_in.Mark(bad, "00_start_here", "image-bytes", "wrong", 0, 1, bad, bad)
    paths = handed_in._write(tmp_path, {bad: [mark]})
    assert bad not in paths[1].read_text(encoding="utf-8")


def test_my_lessons_may_be_handed_in_as_they_are_without_the_copies_beside_them(tmp_path):
    for place in ("ada/my-lessons", "ada/my-lessons/old", "ada/my-lessons/.base", "ada/my-lessons/changes"):
        (tmp_path / place).mkdir(parents=True)
        (tmp_path / place / "05_batch_size_and_minima.ipynb").touch()
    [[path]] = handed_in._notebooks(tmp_path / "ada").values()
    assert path.parent.name == "my-lessons"


def test_a_folder_with_nothing_to_grade_is_refused_and_nothing_is_written(tmp_path):
    (tmp_path / "ada").mkdir()
    (tmp_path / "05_batch_size_and_minima_ada.ipynb").touch()
    with pytest.raises(handed_in.LabError, match=r"ada in .*, without a notebook of a lesson"):
        handed_in.grade(tmp_path)
    assert not list(tmp_path.glob("grades.*"))
