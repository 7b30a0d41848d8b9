"""Fills the tables of docs/teaching.md with minutes, exercises and points.

Some tables list the lessons; others are plans, the timetables of a term or a workshop. The cell to
the left of the column "minutes" names what is counted: "00, 01" names lessons, and "00: 0-3, 5; 02:
4" names sections of lessons. Section 0 is the text before the first numbered heading. A column
"exercises, points" further to the right counts the exercises of the same lessons or sections.
"""

import re

from labkit.authoring.reading import reading, reading_of_sections, to_five
from labkit.errors import LabError
from labkit.lesson.syllabus import lessons

SECTIONS = r"\d\d: \d+(-\d+)?(, \d+(-\d+)?)*"
STEPS = re.compile(rf"\d\d(, \d\d)*|{SECTIONS}(; {SECTIONS})*")
TASKS = "exercises, points"


def filled(page: str) -> str:
    """Return a page in Markdown with the numbers in its tables counted anew.

    Text, and tables without a column "minutes", stay as they are.

    Raises  LabError where a table names a lesson or a section that does not exist
    """
    course = {lesson.name[:2]: lesson for lesson in lessons()}
    lines = []
    titles: list[str] = []
    for line in page.splitlines(keepends=True):
        if not line.startswith("|"):
            titles = []
        elif not titles:
            titles = _cells(line)
        elif "minutes" in titles and not line.startswith("|---"):
            line = _filled_row(line, titles, course)
        lines.append(line)
    return "".join(lines)


def _cells(line):
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def _filled_row(line, titles, course):
    """Return a row of a table with its minutes, exercises and points counted anew.

    line    the row in Markdown
    titles  titles of the table's columns
    course  {number of a lesson, such as "00": its `LessonPage`}
    """
    cells = _cells(line)
    minutes = tasks = None
    for column, title in enumerate(titles[: len(cells)]):
        if title == "minutes" and STEPS.fullmatch(cells[column - 1]):
            minutes, tasks = _count(cells[column - 1], course)
            cells[column] = str(minutes)
        if title == TASKS and tasks is not None:
            cells[column] = f"{len(tasks)}, {sum(task.difficulty for task in tasks)}"
    if minutes is None:
        return line
    return f"| {' | '.join(cells)} |\n"


def _count(steps, course):
    """Return (minutes, list of exercises) of the lessons or sections that a cell names.

    steps   lessons, such as "00, 01", or sections, such as "00: 0-3, 5; 02: 4"
    course  {number of a lesson, such as "00": its `LessonPage`}
    Raises  LabError where a lesson or a section does not exist
    """
    unknown = set(re.findall(r"\d\d(?=[:,]|$)", re.sub(r": [^;]*", ":", steps))) - set(course)
    if unknown:
        raise _wrong_plan(
            f"There is no lesson {min(unknown)}.", expected=", ".join(course), found=steps
        )
    return _count_sections(steps, course) if ":" in steps else _count_lessons(steps, course)


def _count_lessons(numbers, course):
    """Return (minutes, list of exercises) of whole lessons.

    The minutes of each lesson are rounded to five, as its first cell states them, and then added.

    numbers  such as "00, 01"
    course   as in `_count`
    """
    minutes = 0
    tasks = []
    for number in numbers.split(", "):
        lesson = course[number]
        minutes += reading(lesson).minutes
        tasks += lesson.exercises
    return minutes, tasks


def _count_sections(steps, course):
    """Return (minutes, list of exercises) of sections of lessons.

    The minutes of the sections are added, and the sum is rounded to five.

    steps   such as "00: 0-3, 5; 02: 4"
    course  as in `_count`
    Raises  LabError where a section does not exist
    """
    minutes = 0.0
    tasks = []
    for lesson_steps in steps.split("; "):
        number, ranges = lesson_steps.split(": ")
        sections = reading_of_sections(course[number])
        for section in _numbers(ranges):
            if section not in sections:
                expected = f"0 to {max(sections)}"
                raise _wrong_plan(
                    f"Lesson {number} has no section {section}.", expected=expected, found=steps
                )
            section_reading, section_tasks = sections[section]
            minutes += section_reading.exact_minutes
            tasks += section_tasks
    return to_five(minutes), tasks


def _numbers(ranges):
    """Return the numbers of the ranges "0-3, 5": [0, 1, 2, 3, 5]."""
    numbers = []
    for text in ranges.split(", "):
        first, _, last = text.partition("-")
        numbers += range(int(first), int(last or first) + 1)
    return numbers


def _wrong_plan(problem, *, expected, found):
    """Return the `LabError` for a cell of docs/teaching.md that names no lesson or section."""
    return LabError(
        problem, expected=expected, found=found, fix="correct the table of docs/teaching.md"
    )
