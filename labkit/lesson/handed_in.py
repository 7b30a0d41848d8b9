"""What a class handed in, FOLDER/STUDENT/NN_*.ipynb: each answer graded, whatever the others do; a table with reasons.

A folder is a student, a number at the front of a file is a lesson. A student may hand in `my-lessons/` as it is: its
folders `old/` and `.base/` are not looked at.
"""

from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from labkit.device import usable_cores
from labkit.errors import LabError
from labkit.files import write_text
from labkit.lesson import cards, exercises, grading

NONE = "missing", "No notebook of this lesson was handed in."


class Mark(NamedTuple):
    """One exercise of one student: what came of it.

    points   those of its difficulty when it passed; None where it was not graded
    most     points of a right answer
    answer   the student's cell; "" where there is none
    """

    student: str
    lesson: str
    exercise: str
    verdict: str
    points: int | None
    most: int
    reason: str
    answer: str = ""


def grade(folder: Path, *, tell: Callable = print) -> tuple[Path, Path]:
    """Grade a class; writes FOLDER/grades.csv and FOLDER/grades.html, returns their paths.

    tell  called with a line for each student who is done
    Raises  LabError where no notebook of a lesson lies in a folder of a student
    """
    students = {name: found for name in _folders(folder) if (found := _notebooks(folder / name))}
    if not students:
        raise LabError(
            "There is nothing to grade here.",
            expected=f"a folder per student, such as {folder / 'ada' / '05_batch_size_and_minima.ipynb'}",
            found=f"{', '.join(_folders(folder)) or 'no folder'} in {folder}, without a notebook of a lesson",
            fix="put what each student handed in into a folder with the student's name",
        )
    lessons, waiting, marks = sorted(set().union(*students.values())), iter(students), {}

    def work(_):
        with grading.Grader() as grader:
            for name in waiting:
                marks[name] = _student(name, students[name], lessons, grader)
                tell(summary(marks[name]))

    with ThreadPoolExecutor(usable_cores()) as pool:
        list(pool.map(work, range(usable_cores())))
    return _write(folder, {name: marks[name] for name in students})


def summary(marks):
    """One student in a line: "ada: 5 of 7 points; 2 passed, 1 wrong"."""
    words = ", ".join(f"{count} {verdict}" for verdict, count in Counter(mark.verdict for mark in marks).items())
    return (
        f"{marks[0].student}: {sum(mark.points or 0 for mark in marks)} of {sum(m.most for m in marks)} points; {words}"
    )


def _folders(folder):
    return sorted(path.name for path in folder.glob("[!.]*/"))


def _notebooks(student):
    """{a lesson's module of exercises: the paths handed in of it}."""
    lessons, found = exercises.lessons(), {}
    for path in sorted([*student.glob("[0-9][0-9]*.ipynb"), *student.glob("my-lessons/[0-9][0-9]*.ipynb")]):
        if path.name[:2] in lessons:
            found.setdefault(lessons[path.name[:2]], []).append(path)
    return found


def _student(name, handed_in, lessons, grader):
    """The marks of one student in all lessons that anybody handed in."""
    marks = []
    for lesson in lessons:
        cells, otherwise = _cells(handed_in.get(lesson, ()))
        for task in exercises.of(lesson):
            cell = cells.get(task.id)
            verdict, reason = grader.judge(task.id, *cell) if cell else otherwise
            points = {"passed": task.difficulty, "not graded": None}.get(verdict, 0)
            mark = Mark(name, lesson[1:], task.id, verdict, points, task.difficulty, reason, cell[1] if cell else "")
            marks.append(mark)
    return marks


def _cells(paths):
    """(what `grading.asked` finds, the verdict on an exercise that is not in it)."""
    if len(paths) != 1:
        several = "Several notebooks of this lesson: leave one."
        return {}, ("not graded", f"{several} {', '.join(path.name for path in paths)}") if paths else NONE
    try:
        return grading.asked(paths[0]), ("missing", grading.GONE)
    except Exception as error:  # a file of that name may hold anything
        return {}, ("not graded", f"{paths[0].name} cannot be read as a notebook: {type(error).__name__}: {error}")


def _write(folder, students):
    """The table for a spreadsheet, and the page, of {student: marks}."""
    import pandas as pd

    table = pd.DataFrame([mark for marks in students.values() for mark in marks]).convert_dtypes()
    paths = folder / "grades.csv", folder / "grades.html"
    write_text(paths[0], table.drop(columns="answer").to_csv(index=False))
    write_text(paths[1], cards.template("grades.html").render(students=students, summary=summary))
    return paths
