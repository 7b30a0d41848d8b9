"""The tables of docs/teaching.md: minutes, exercises and points of the lessons, and of plans for a
term and a workshop.

A column "minutes" belongs to the one left of it, which names lessons ("00, 01") or sections of
lessons
("00: 0-3, 5; 02: 4"; 0 is what stands before the first section). "exercises, points" belongs to the
same.
"""

import re

from labkit.authoring.reading import reading, reading_of_sections, to_five
from labkit.errors import LabError
from labkit.lesson.syllabus import lessons

SECTIONS = r"\d\d: \d+(-\d+)?(, \d+(-\d+)?)*"
STEPS = re.compile(rf"\d\d(, \d\d)*|{SECTIONS}(; {SECTIONS})*")
TASKS = "exercises, points"


def filled(page: str) -> str:
    """Return a page in Markdown with the numbers of its tables written anew; what is no such
    table stays as it is.
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
    """Return a row with its minutes, exercises and points."""
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
    """Return (minutes, exercises) of lessons, "00, 01", or of sections, "00: 0-3, 5; 02: 4".

    course  {number of a lesson: its `LessonPage`}
    """
    unknown = set(re.findall(r"\d\d(?=[:,]|$)", re.sub(r": [^;]*", ":", steps))) - set(course)
    if unknown:
        raise _wrong_plan(
            f"There is no lesson {min(unknown)}.", expected=", ".join(course), found=steps
        )
    return _count_sections(steps, course) if ":" in steps else _count_lessons(steps, course)


def _count_lessons(numbers, course):
    """Return (minutes, exercises) of whole lessons: the sum of the minutes that their first
    cells say.
    """
    minutes = 0
    tasks = []
    for number in numbers.split(", "):
        lesson = course[number]
        minutes += reading(lesson).minutes
        tasks += lesson.exercises
    return minutes, tasks


def _count_sections(steps, course):
    """Return (minutes, exercises) of sections of lessons."""
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
    """Return the numbers of "0-3, 5": [0, 1, 2, 3, 5]."""
    numbers = []
    for text in ranges.split(", "):
        first, _, last = text.partition("-")
        numbers += range(int(first), int(last or first) + 1)
    return numbers


def _wrong_plan(problem, *, expected, found):
    return LabError(
        problem, expected=expected, found=found, fix="correct the table of docs/teaching.md"
    )
