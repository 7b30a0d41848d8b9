"""The plans for teachers: what the command writes into their tables is what the lessons hold."""

import re

import nbformat
import pytest

from labkit.authoring import plans, reading
from labkit.errors import LabError
from labkit.files import root
from labkit.lesson import syllabus

TEACHING = (root() / "docs" / "teaching.md").read_text(encoding="utf-8")
WEEKS = re.findall(
    r"^\| \d+ \| (\d\d[\d, ]*) \| (\d+) \| (\d+), (\d+) \| ([^|]+) \| (\d+) \| "
    r"([^|]+) \| (\d+) \|$",
    TEACHING,
    flags=re.MULTILINE,
)
HOURS = re.findall(
    r"^\| (?:first|second) \| ([^|]+) \| (\d+) \| (\d+), (\d+) \|", TEACHING, flags=re.MULTILINE
)
LESSONS = {lesson.name[:2]: lesson for lesson in syllabus.lessons()}


def sections_of(steps):
    """The pairs (lesson, section) that a cell names, read another way than the command does."""
    pairs = []
    for lesson, numbers in re.findall(r"(\d\d): ([\d, -]+)", steps):
        for first, last in re.findall(r"(\d+)(?:-(\d+))?", numbers):
            pairs += [(lesson, number) for number in range(int(first), int(last or first) + 1)]
    return pairs


def test_the_tables_say_what_the_command_writes():
    assert plans.filled(TEACHING) == TEACHING, "labkit minutes"


def test_a_term_holds_each_lesson_once_with_its_minutes_and_points():
    assert len(WEEKS) == 12
    planned = [number for numbers, *_ in WEEKS for number in numbers.split(", ")]
    assert planned == list(LESSONS)
    for numbers, minutes, count, points, *_ in WEEKS:
        pages = [LESSONS[number] for number in numbers.split(", ")]
        tasks = [task for page in pages for task in page.exercises]
        assert int(minutes) == sum(page.minutes for page in pages)
        assert (int(count), int(points)) == (len(tasks), sum(task.difficulty for task in tasks))


def test_a_session_fits_its_time_and_what_is_left_out_holds_no_exercise():
    readings = {number: reading.reading_of_sections(page) for number, page in LESSONS.items()}
    for numbers, _, _, _, together, minutes, left_out, _ in WEEKS:
        assert 45 <= int(minutes) <= 80, "of 90; the rest is for questions"
        assert {lesson for lesson, _ in sections_of(together + left_out)} <= set(
            numbers.split(", ")
        )
        assert not set(sections_of(together)) & set(sections_of(left_out))
        assert all(readings[lesson][section][1] == [] for lesson, section in sections_of(left_out))
    assert len(HOURS) == 2
    assert all(int(minutes) <= 50 for _, minutes, _, _ in HOURS), (
        "of 60; the rest is for starting and the discussion"
    )


@pytest.mark.parametrize("page", LESSONS.values(), ids=lambda page: page.name)
def test_sections_hold_every_exercise_once_and_never_more_than_the_lesson(page):
    readings = reading.reading_of_sections(page)
    tasks = [task.id for _, section_tasks in readings.values() for task in section_tasks]
    assert sorted(tasks) == sorted(task.id for task in page.exercises)
    assert sum(section.words for section, _ in readings.values()) <= reading.reading(page).words
    assert sorted(readings) == list(range(len(readings)))


@pytest.fixture
def course(tmp_path, monkeypatch):
    """Two lessons of sections with 200 words, a minute, or lines of code."""
    monkeypatch.setenv("LABKIT_ROOT", str(tmp_path))
    (tmp_path / "notebooks").mkdir()
    words = "word " * 198  # and the two or three of a heading
    texts = {
        "00_tea": [("md", "# Tea\n\n" + words), ("md", "## 1. Water\n" + words * 5), ("code", "x = 1\n" * 60),
                   ("md", "## 2. Leaves\n" + words * 20), ("md", "## Yours\n" + words * 40)],
        "01_cake": [("md", "# Cake\n\n" + words), ("md", "## 1. Flour\n" + words * 10)],
    }  # fmt: skip
    for name, cells in texts.items():
        made = [
            nbformat.v4.new_markdown_cell(text) if kind == "md" else nbformat.v4.new_code_cell(text)
            for kind, text in cells
        ]
        nbformat.write(
            nbformat.v4.new_notebook(cells=made), tmp_path / "notebooks" / f"{name}.ipynb"
        )


HEAD = "| plan | sections | minutes | exercises, points |\n|---|---|---|---|\n"


@pytest.mark.parametrize(
    ("steps", "minutes"),
    [
        ("00: 0", 0),  # a minute
        ("00: 1", 10),  # 5 of words, 5 of code
        ("00: 0-2", 30),
        ("00: 1, 2", 30),
        ("00: 1; 01: 1", 20),
        ("01: 0, 1; 00: 2", 30),
        ("00", 70),  # with "Yours"
        ("00, 01", 80),
    ],
)
def test_minutes_of_a_plan_are_those_of_its_sections(course, steps, minutes):
    page = f"text | 3 |\n\n{HEAD}| a | {steps} | ? | ? |\n"
    assert plans.filled(page) == page.replace("? | ?", f"{minutes} | 0, 0")


def test_other_tables_and_rows_without_steps_stay_as_they_are(course):
    for page in (
        "| a | b |\n|---|---|\n| 00 | 3 |\n",
        f"{HEAD}| a | all | 3 | 1, 1 |\n",
        "no table\n",
        "",
    ):
        assert plans.filled(page) == page


@pytest.mark.parametrize(
    ("steps", "words"),
    [
        ("00: 3", "has no section 3"),
        ("00: 0-9", "has no section 3"),
        ("02: 1", "no lesson 02"),
        ("00, 07", "no lesson 07"),
    ],
)
def test_a_plan_of_what_there_is_not_is_refused(course, steps, words):
    with pytest.raises(LabError, match=words):
        plans.filled(f"{HEAD}| a | {steps} | 0 | 0, 0 |\n")
