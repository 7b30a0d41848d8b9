"""What `start` lists of labkit, what a gap of the machine costs, and the minutes of a lesson."""

import json
import subprocess
import sys

import nbformat
import pytest

from labkit.authoring import minutes
from labkit.device.packages import Check
from labkit.errors import LabError
from labkit.files import root
from labkit.lesson import cards, machine, syllabus
from labkit.lesson.helpers import helpers_of
from labkit.plots import canvas


def notebook(path, *cells):
    """A notebook of cells: code, or prose that begins with "md "."""
    made = [
        nbformat.v4.new_markdown_cell(cell[3:])
        if cell.startswith("md ")
        else nbformat.v4.new_code_cell(cell)
        for cell in cells
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(nbformat.v4.new_notebook(cells=made), path)
    return path


# ---- helpers


IMPORTS = """%matplotlib inline
import torch
from torch import nn
from labkit import plots
from labkit.lesson import predict as ask, start
from labkit.plots import canvas, GREY
from labkit.nowhere import nothing"""


def test_each_imported_name_is_listed_with_its_source(tmp_path, monkeypatch):
    monkeypatch.setenv(
        "JPY_SESSION_NAME",
        str(notebook(tmp_path / "a.ipynb", IMPORTS, "from labkit.plots import canvas")),
    )
    found = {helper.name: helper for helper in helpers_of("99_other")}
    assert list(found) == ["plots", "predict", "start", "canvas", "GREY"]
    assert found["plots"].file == "labkit/plots/__init__.py"
    assert found["canvas"].file == "labkit/plots/canvas.py"
    assert found["canvas"].summary == canvas.__doc__.splitlines()[0]
    line = (root() / found["start"].file).read_text().splitlines()[found["start"].line - 1]
    assert line.startswith("def start(")
    assert (tmp_path / found["canvas"].link).resolve() == root() / "labkit" / "plots" / "canvas.py"


def test_without_a_notebook_in_jupyter_it_is_the_lesson_of_that_name(monkeypatch):
    monkeypatch.delenv("JPY_SESSION_NAME", raising=False)
    names = {helper.name for helper in helpers_of(syllabus.lessons()[0].name)}
    assert {"start", "recap"} <= names


@pytest.mark.parametrize(
    "content", [None, "no json", "{}", '{"cells": [{"cell_type": "code", "source": "def"}]}']
)
def test_a_notebook_that_cannot_be_found_or_read_lists_nothing(tmp_path, monkeypatch, content):
    path = tmp_path / "a.ipynb"
    if content:
        path.write_text(content)
    monkeypatch.setenv("JPY_SESSION_NAME", str(path))
    assert helpers_of("99_no_such_lesson") == []


def test_looking_names_up_imports_nothing():
    code = (
        "import sys\nfrom labkit.lesson.helpers import helpers_of\nbefore = set(sys.modules)\n"
        "found = helpers_of('06_batch_size_and_minima')\nprint(len(found) > 5, "
        "set(sys.modules) - before)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "set()"]


# ---- the machine


def test_each_gap_says_what_it_costs_and_how_to_fill_it(monkeypatch, capsys):
    checks = [
        Check("cpu", True, "a small one"),
        Check("gpu", False, "none", fix="buy one"),
        Check("data: cifar10", False, "not here", fix="labkit data get cifar10"),
        Check("onnxslim", False, "not installed: one graph optimisation less"),
        Check("engine tensorrt", False, "on cuda only"),
    ]
    monkeypatch.setattr(machine, "examine", lambda: checks)
    machine.show_machine()
    text = capsys.readouterr().out
    assert "1 of 5 parts of the course work here" in text
    assert "gpu: what needs a GPU is not measured" in text
    assert "cifar10: experiments on these pictures" in text
    assert "labkit data get cifar10" in text
    assert "onnxslim: not installed: one graph optimisation less" in text
    assert "engine tensorrt: its rows have a reason and no time" in text


def test_a_machine_that_lacks_nothing_says_so():
    assert "Nothing is missing" in cards.plain(cards.card("machine", "a CPU", 5, 5, []))


# ---- minutes


TABLE = "| lesson | minutes | exercises, points |\n|---|---|---|\n"


@pytest.fixture
def course(tmp_path, monkeypatch):
    monkeypatch.setenv("LABKIT_ROOT", str(tmp_path))
    notebook(
        tmp_path / "notebooks" / "00_tea.ipynb",
        "md # Tea\n\n**Why?**\n\nAbout 3 minutes, and 4 more for something.\n\n" + "word " * 990,
        "x = 1\n\n# a comment\ny = 2",
        'predict("p", "one two three four five six seven eight nine", default=1)',
        "plots.ladder(ladder, small)",
        "plots.ladder(ladder, large)\nplots.rates(runs)",
        "figure, ax = canvas()\nax.plot(x)\nfigure",
        "table",
        'claim("c", "s", 1, above=0)',
    )
    (tmp_path / "README.md").write_text("| [`00_tea`](notebooks/00_tea.ipynb) | Why? | 3 |\n")
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "teaching.md").write_text(f"{TABLE}| 00 | 3 | 9, 9 |\n")
    return tmp_path


def test_minutes_count_what_a_reader_meets(course):
    [lesson] = syllabus.lessons()
    found = minutes.reading(lesson)
    # 990 words, eleven of the first lines and nine of the question; a ladder that grows is one
    # picture
    assert found == minutes.Reading(
        words=1010, lines=11, pictures=3, tables=1, predictions=1, exercises=0
    )
    by_hand = 1010 / 200 + 11 / 12 + 2 * 3 + 0.5 * 1 + 0.5 * 1  # 12.97
    assert found.minutes == 5 * round(by_hand / 5) == 15


def test_exercises_count_with_the_minutes_that_they_state():
    [lesson] = [page for page in syllabus.lessons() if page.slug == "measuring-honestly"]
    found = minutes.reading(lesson)
    assert found.exercises == sum(task.minutes for task in lesson.exercises) > 0
    assert found.sentence.endswith(f"{found.exercises} of them for the exercises.")


def test_the_command_writes_them_into_the_first_cell_and_both_pages(course):
    minutes.write()
    [lesson] = syllabus.lessons()
    assert lesson.minutes == 15
    assert "About 15 minutes." in "".join(json.loads(lesson.path.read_text())["cells"][0]["source"])
    assert (
        course / "README.md"
    ).read_text() == "| [`00_tea`](notebooks/00_tea.ipynb) | Why? | 15 |\n"
    assert (course / "docs" / "teaching.md").read_text() == f"{TABLE}| 00 | 15 | 0, 0 |\n"


def test_a_page_without_a_place_for_them_is_named_and_nothing_is_written(course):
    (course / "docs" / "teaching.md").write_text("nothing")
    with pytest.raises(LabError, match=r"teaching\.md has no place"):
        minutes.write()
    assert "| 3 |" in (course / "README.md").read_text()
