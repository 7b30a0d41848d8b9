"""Grades what a class handed in, FOLDER/STUDENT/NN_*.ipynb, and writes a table with reasons.

Every folder or file in FOLDER counts as a student, so none is missing from the table. A student may
hand in `my-lessons/` as it is. All notebooks are read before the first answer runs, so no answer
can change what another student handed in.
"""

from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from labkit.classroom import grading
from labkit.classroom.submissions import Student, read_class
from labkit.device import usable_cores
from labkit.errors import LabError
from labkit.files import write_together
from labkit.lesson import cards, exercises

FORMULA_SIGNS = ("=", "+", "-", "@")  # a spreadsheet computes a cell that begins with one


class Mark(NamedTuple):
    """The grade of one student in one exercise.

    student   name of the student
    lesson    name of the lesson
    exercise  id of the exercise
    verdict   one of those that `grading.judge` returns, or "missing"
    points    0, or `most` where the answer passed; None where it was not graded
    most      points of an answer that passes, from the exercise's difficulty
    reason    why the verdict is not "passed", in sentences
    answer    source of the student's cell; "" where there is none
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
    """Grade a class: write FOLDER/grades.csv and FOLDER/grades.html, and return their paths.

    tell    function that is called with a line for each student who has been graded
    Raises  LabError where nobody handed in a notebook of a lesson
    """
    students = read_class(folder)
    lessons = sorted(set().union(*(student.lessons for student in students)))
    if not lessons:
        names = ", ".join(student.name for student in students)
        raise LabError(
            "There is nothing to grade here.",
            expected="a folder per student, such as "
            f"{folder / 'ada' / '06_batch_size_and_minima.ipynb'}",
            found=f"{names or 'nothing'} in {folder}, without a notebook of a lesson",
            fix="put what each student handed in into a folder with the student's name",
        )

    # One thread per core grades one student after the other. It waits for the process in which an
    # answer runs.
    remaining_students = iter(enumerate(students))
    marks: dict[int, list[Mark]] = {}

    def grade_students(_):
        for number, student in remaining_students:
            marks[number] = _marks_of(student, lessons)
            tell(summary(marks[number]))

    with ThreadPoolExecutor(usable_cores()) as pool:
        list(pool.map(grade_students, range(usable_cores())))
    return _write(folder, [marks[number] for number in range(len(students))])


def summary(marks):
    """Return the marks of one student in a line: "ada: 5 of 7 points; 2 passed, 1 wrong"."""
    counts = Counter(mark.verdict for mark in marks)
    verdicts = ", ".join(f"{count} {verdict}" for verdict, count in counts.items())
    points = sum(mark.points or 0 for mark in marks)
    most = sum(mark.most for mark in marks)
    return f"{marks[0].student}: {points} of {most} points; {verdicts}"


def _marks_of(student: Student, lessons):
    """Return the marks of one student as a list of `Mark`, one for each exercise of the lessons.

    An exercise of a lesson that this student did not hand in has 0 points, and the reason.

    lessons  names of all lessons that at least one student handed in
    """
    marks = []
    for lesson in lessons:
        submission = student.of(lesson)
        for task in exercises.of(lesson):
            answer = ""
            verdict, reason = submission.otherwise
            if task.id in submission.answers:
                imports, answer = submission.answers[task.id]
                verdict, reason = _judged(task.id, imports, answer)
            points_by_verdict = {"passed": task.difficulty, "not graded": None}
            mark = Mark(
                student=student.name,
                lesson=lesson,
                exercise=task.id,
                verdict=verdict,
                points=points_by_verdict.get(verdict, 0),
                most=task.difficulty,
                reason=_writable(reason),
                answer=_writable(answer),
            )
            marks.append(mark)
    return marks


def _judged(exercise_id, imports, answer):
    """Return (verdict, reason) of an answer, as `grading.judge` grades it.

    The verdict is "not graded" where the grading raises an error.
    """
    try:
        verdict, reason = grading.judge(exercise_id, imports, answer)
        return str(verdict), str(reason)
    except Exception as error:
        return "not graded", f"It could not be graded: {type(error).__name__}: {error}"


def _writable(text):
    """Return a text that can be written to a file: each lone surrogate becomes "?".

    A notebook is JSON, which may hold a surrogate, half of a character. UTF-8 cannot.
    """
    return text.encode(errors="replace").decode()


def _as_text(cell):
    """Return a cell of a table so that a spreadsheet shows its text.

    A spreadsheet computes a text that begins like a formula, so this text gets a "'" in front.
    """
    return f"'{cell}" if isinstance(cell, str) and cell.startswith(FORMULA_SIGNS) else cell


def _write(folder, students):
    """Write grades.csv and grades.html into a folder. Returns their paths.

    students  a list with one list of `Mark`s for each student
    """
    import pandas as pd

    all_marks = []
    for marks in students:
        all_marks.extend(marks)
    table = pd.DataFrame(all_marks).convert_dtypes().drop(columns="answer")
    page = cards.template("grades.html").render(students=students, summary=summary)
    table_path = folder / "grades.csv"
    page_path = folder / "grades.html"
    write_together({table_path: table.map(_as_text).to_csv(index=False), page_path: page})
    return table_path, page_path
