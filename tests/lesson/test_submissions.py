"""What a class hands in: everything is a row of the table, all is read first, and nothing is
waited for.
"""

import contextlib
import csv
import os
import socket

import nbformat
import pytest

from labkit.classroom import grading, handed_in, submissions
from labkit.classroom.submissions import read_class
from labkit.files import notebooks

LESSON = "03_what_limits_speed"
ANSWER = "def image_bytes():\n    pass\nimage_bytes = exercise('image-bytes').check(image_bytes)"


@pytest.fixture(autouse=True)
def judged(monkeypatch):
    """What was judged, in order; every answer passes at once: how answers are graded,
    test_handed_in.py tests.
    """
    calls = []

    def judge(exercise_id, imports, source):
        calls.append((exercise_id, source))
        return "passed", ""

    monkeypatch.setattr(grading, "judge", judge)
    return calls


def write_notebook(path, source=ANSWER):
    path.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source)]), path)


def write_file(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"PK\3\4")


def write_folder(path):
    path.mkdir(parents=True)


def write_pipe(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    os.mkfifo(path)


def write_socket(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.chdir(path.parent), socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path.name)  # the address of a socket has to be short


def write_link_to(target):
    def write(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(target)

    return write


def write_huge(path):
    write_notebook(path)
    with path.open("rb+") as file:
        file.truncate(submissions.MAX_BYTES + 1)  # takes no place on the disk


def write_text(text):
    def write(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    return write


NAME = f"{LESSON}.ipynb"
KINDS = {  # {path in FOLDER: (how it is made, verdict of image-bytes, words of its reason)}
    f"plain/{NAME}": (write_notebook, "passed", ""),
    "number only/03.ipynb": (write_notebook, "passed", ""),
    "after the number/03 by Bo (1).ipynb": (write_notebook, "passed", ""),
    f"prefix of a platform/bo_12345_{NAME}": (write_notebook, "passed", ""),
    f"number before it/12345-{NAME}": (write_notebook, "passed", ""),
    f"deeper/submission/v2/{NAME}": (write_notebook, "passed", ""),
    f"capitals/{LESSON.upper()}.IPYNB": (write_notebook, "passed", ""),
    f"..dots../{NAME}": (write_notebook, "passed", ""),
    f"as it is/my-lessons/{NAME}": (write_notebook, "passed", ""),
    f"José Ñ/{NAME}": (write_notebook, "passed", ""),
    f"=cmd|calc!A1/{NAME}": (write_notebook, "passed", ""),
    "a zip/hand.zip": (write_file, "missing", "The folder holds hand.zip."),
    f"a page/{LESSON}.html": (write_file, "missing", f"The folder holds {LESSON}.html."),
    "another notebook/homework.ipynb": (
        write_notebook,
        "missing",
        "The folder holds homework.ipynb.",
    ),
    "a number of five digits/03456.ipynb": (
        write_notebook,
        "missing",
        "The folder holds 03456.ipynb.",
    ),
    "nothing": (write_folder, "missing", "The folder holds nothing."),
    f"old copies only/my-lessons/old/{NAME}": (
        write_notebook,
        "missing",
        "The folder holds nothing.",
    ),
    f"a pipe/{NAME}": (write_pipe, "not graded", "is no file, but a folder, a pipe or a device"),
    f"a socket/{NAME}": (write_socket, "not graded", "is no file"),
    f"a folder/{NAME}": (write_folder, "not graded", "is no file"),
    f"a device/{NAME}": (write_link_to("/dev/zero"), "not graded", "is a link"),
    f"of another/{NAME}": (write_link_to(f"../plain/{NAME}"), "not graded", "is a link"),
    f"round/{NAME}": (write_link_to("."), "not graded", "is a link"),
    f"huge/{NAME}": (write_huge, "not graded", "67 MB; a notebook has at most 67 MB"),
    f"no notebook/{NAME}": (write_text("{"), "not graded", "cannot be read as a notebook"),
    f"deep/{NAME}": (write_text("[" * 10**6), "not graded", "cannot be read as a notebook"),
    f"half a character/{NAME}": (None, "passed", ""),
    f"an empty one/{NAME}": (lambda path: write_notebook(path, ""), "missing", "its cell is gone"),
    f"eve_{NAME}": (write_notebook, "not graded", "lies beside the students' folders"),
    "zoe.zip": (write_file, "not graded", "lies beside the students' folders"),
    "pipe": (write_pipe, "not graded", "lies beside the students' folders"),
}


def write_kinds(folder):
    """Write all kinds, and one whose name is no UTF-8; returns {name in the table: (verdict,
    words)}.
    """
    expected = {}
    for path, (write, verdict, words) in KINDS.items():
        (write or write_notebook)(folder / path)
        expected[path.split("/")[0]] = verdict, words
    half = (folder / "plain" / NAME).read_text().replace("    pass", r"    '\ud800'")
    (folder / "half a character" / NAME).write_text(half)
    write_notebook(folder / "plain" / "old" / NAME)
    write_notebook(folder / "plain" / ".ipynb_checkpoints" / NAME)
    write_notebook(folder / os.fsdecode(b"no UTF-8 \xff") / NAME)
    expected["no UTF-8 �"] = "passed", ""
    return expected


def rows_of(folder):
    """The rows of the table on image-bytes."""
    with (folder / "grades.csv").open(newline="", encoding="utf-8") as file:
        return {
            row["student"]: row for row in csv.DictReader(file) if row["exercise"] == "image-bytes"
        }


@pytest.mark.timeout(300)
def test_everything_that_lies_in_the_folder_is_a_row_with_its_reason(tmp_path):
    expected = write_kinds(tmp_path)
    said = []
    handed_in.grade(tmp_path, tell=said.append)
    rows = rows_of(tmp_path)
    assert set(rows) == {f"'{name}" if name[0] == "=" else name for name in expected}
    assert len(said) == len(expected)
    for name, (verdict, words) in expected.items():
        row = rows[f"'{name}" if name[0] == "=" else name]
        assert (row["verdict"], words in row["reason"]) == (verdict, True), row
    page = (tmp_path / "grades.html").read_text(encoding="utf-8")
    assert page.count("<h2 ") == len(expected)


def test_a_second_grading_takes_its_own_table_for_nobody(tmp_path):
    write_notebook(tmp_path / "ada" / NAME)
    for _ in range(2):
        handed_in.grade(tmp_path, tell=str)
        assert set(rows_of(tmp_path)) == {"ada"}


def test_all_notebooks_are_read_before_the_first_answer_runs(tmp_path, monkeypatch):
    for student in ("ada", "bo", "cy"):
        write_notebook(tmp_path / student / NAME, ANSWER + f"  # {student}")
    sources = []

    def spoil(exercise_id, imports, source):
        sources.append(source)
        for path in tmp_path.glob("*/*.ipynb"):
            path.write_text("spoilt")
        return "passed", ""

    monkeypatch.setattr(grading, "judge", spoil)
    handed_in.grade(tmp_path, tell=str)
    assert {row["verdict"] for row in rows_of(tmp_path).values()} == {"passed"}
    assert sorted(source.split()[-1] for source in sources) == ["ada", "bo", "cy"]


def test_two_notebooks_of_a_lesson_are_named_with_their_folders(tmp_path):
    write_notebook(tmp_path / "ada" / NAME)
    write_notebook(tmp_path / "ada" / "copy" / NAME)
    [ada] = read_class(tmp_path)
    assert ada.of(LESSON).answers == {}
    assert ada.of(LESSON).otherwise == (
        "not graded",
        f"Several notebooks of this lesson: leave one. {NAME}, copy/{NAME}",
    )


def test_a_folder_that_cannot_be_read_is_not_graded(tmp_path, monkeypatch):
    write_notebook(tmp_path / "ada" / NAME)
    write_folder(tmp_path / "bo")
    walk = os.walk

    def refused(folder, onerror):
        if folder.name == "bo":
            onerror(PermissionError(13, "Permission denied", str(folder)))
        return walk(folder, onerror=onerror)

    monkeypatch.setattr(os, "walk", refused)
    handed_in.grade(tmp_path, tell=str)
    row = rows_of(tmp_path)["bo"]
    assert (row["verdict"], "Permission denied" in row["reason"]) == ("not graded", True)


@pytest.mark.parametrize(
    "outcome", [RuntimeError("no place for a process"), "passed", ("passed",), None]
)
def test_an_answer_that_breaks_its_grading_is_not_graded_and_the_others_are(
    tmp_path, monkeypatch, outcome
):
    for student in ("ada", "bo"):
        write_notebook(tmp_path / student / NAME, ANSWER + f"  # {student}")

    def judge(exercise_id, imports, source):
        if source.endswith("ada"):
            if isinstance(outcome, Exception):
                raise outcome
            return outcome
        return "passed", ""

    monkeypatch.setattr(grading, "judge", judge)
    handed_in.grade(tmp_path, tell=str)
    assert {name: row["verdict"] for name, row in rows_of(tmp_path).items()} == {
        "ada": "not graded",
        "bo": "passed",
    }


@pytest.mark.parametrize("path", notebooks(), ids=lambda path: path.stem)
def test_a_file_is_called_after_its_lesson_by_name_or_number(path):
    for name in (
        path.name,
        f"x_99_{path.name}",
        f"{path.stem} (2).ipynb",
        f"{path.name[:2]}.ipynb",
        path.name.upper(),
    ):
        assert grading.lesson_named_by(path.with_name(name)) == path.stem
    for name in (f"1{path.name}", f"{path.name[:2]}9.ipynb", "homework.ipynb", "99_start.ipynb"):
        assert grading.lesson_named_by(path.with_name(name)) is None
