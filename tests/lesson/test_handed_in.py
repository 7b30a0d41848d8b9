"""Grading a class: everybody is judged, whatever the others hand in, and the table says why."""

import csv
import itertools
import json

import made_up_class
import psutil
import pytest
from made_up_class import write_class
from test_cli import call

from labkit.classroom import grading, handed_in
from labkit.lesson import exercises

SOME = ("ada", "di", "fay", "kim", "ned", "pam", "tim", "yan", "zoe", "cleo", "don")
ENDLESS = ("hal", "ida", "jo", "ray")


def table_of(folder):
    """{(student, exercise): the row of grades.csv}."""
    with (folder / "grades.csv").open(newline="") as file:
        return {(row["student"], row["exercise"]): row for row in csv.DictReader(file)}


@pytest.mark.slow
@pytest.mark.release
@pytest.mark.timeout(1800)
def test_everybody_in_a_class_is_judged_and_the_table_says_why(tmp_path):
    expected = write_class(tmp_path, SOME)
    output = call("grade", str(tmp_path))
    assert "yan: 7 of 18 points; 4 passed, 5 missing" in output
    rows = table_of(tmp_path)
    assert len(rows) == 9 * len(SOME)
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
@pytest.mark.release
@pytest.mark.timeout(1800)
def test_answers_that_never_end_are_ended_and_are_wrong(tmp_path, monkeypatch):
    # of which a process needs some to import the checks
    monkeypatch.setattr(grading, "COMPUTING_S", 12)
    write_class(tmp_path, ENDLESS)
    call("grade", str(tmp_path))
    rows = table_of(tmp_path)
    for student in ENDLESS:
        row = rows[student, "image-bytes"]
        assert (row["verdict"], "had not finished" in row["reason"]) == ("wrong", True), row


HIDES = "import os, subprocess, time\n    "
STARTS = {  # a process that leaves its parent, its group and its session; the answer is right
    "forks twice": HIDES + "if not os.fork():\n        os.setsid()\n        if not os.fork():\n"
    "            os.execvp('sleep', ['sleep', '{mark}'])\n        os._exit(0)\n    "
    "time.sleep(1)\n    ",
    "starts a session": HIDES
    + "subprocess.Popen(['sleep', '{mark}'], start_new_session=True)\n    ",
    "by a shell": HIDES
    + "os.system('nohup setsid sleep {mark} >/dev/null 2>&1 &')\n    time.sleep(1)\n    ",
}
ENDS = {  # {how the answer goes on: its verdict}
    "return images * height * width * bytes_per_value": "passed",
    "os._exit(0)": "wrong",
    "os.kill(os.getppid(), 9)\n    time.sleep(600)": "not graded",
    "os.killpg(0, 9)": "not graded",
}
MARK = "98765.4321"  # s


@pytest.mark.slow
@pytest.mark.kills
@pytest.mark.timeout(900)
def test_what_an_answer_starts_ends_with_it_and_the_grading_goes_on(tmp_path):
    name, page = made_up_class._page(3)
    # one process for each student
    page = made_up_class._without(page, *made_up_class.LEFT_OUT, "least-seconds")
    # The best hidden process with each end, and each process with the hardest end.
    hides_best, hardest = "forks twice", "os.killpg(0, 9)"
    expected = {}
    for start, end in itertools.product(STARTS, ENDS):
        if start == hides_best or end == hardest:
            student = f"{start}, {list(ENDS).index(end)}"
            expected[student] = ENDS[end]
            (tmp_path / student).mkdir()
            answer = made_up_class._with(page, STARTS[start].format(mark=MARK) + end)
            (tmp_path / student / name).write_text(json.dumps(answer), encoding="utf-8")
    call("grade", str(tmp_path))
    rows = table_of(tmp_path)
    assert {student: rows[student, "image-bytes"]["verdict"] for student in expected} == expected
    left = [
        process
        for process in psutil.process_iter(["cmdline"])
        if MARK in (process.info["cmdline"] or ())
    ]
    for process in left:
        process.kill()
    assert left == []


def test_what_a_student_writes_is_text_on_the_page(tmp_path):
    bad = "<script>alert(1)</script>"
    mark = handed_in.Mark(bad, "03_what_limits_speed", "image-bytes", "wrong", 0, 1, bad, bad)
    paths = handed_in._write(tmp_path, [[mark]])
    assert bad not in paths[1].read_text(encoding="utf-8")


def test_a_folder_with_nothing_to_grade_is_refused_and_nothing_is_written(tmp_path):
    (tmp_path / "ada").mkdir()
    (tmp_path / "old_quiz.ipynb").touch()
    with pytest.raises(
        handed_in.LabError, match=r"ada, old_quiz.ipynb in .*, without a notebook of a lesson"
    ):
        handed_in.grade(tmp_path)
    assert not list(tmp_path.glob("grades.*"))
