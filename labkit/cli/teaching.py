"""Commands for instructors and authors: grade, release, minutes."""

from pathlib import Path
from typing import Annotated

from typer import Argument, echo

from labkit.cli.app import app, path_of


@app.command()
def grade(
    folder: Annotated[
        Path, Argument(help="Holds a folder per student, with the notebooks handed in.")
    ],
):
    """Grade what a class handed in, FOLDER/STUDENT/NN_*.ipynb.

    Each answer is checked alone, in a process of its own with limits of time and memory.
    FOLDER/grades.csv has a line per student and exercise, FOLDER/grades.html the reasons. The
    students' code runs with your rights: docs/teaching.md has the line for a container.

    Example: labkit grade handed-in
    """
    from labkit.classroom import handed_in

    for path in handed_in.grade(folder, tell=echo):
        echo(path_of(path))


@app.command()
def release(
    folder: Annotated[Path, Argument(help="Where the student edition goes: a new folder.")],
):
    """Write the course without answers, for students.

    An exercise that is not solved ends its cell with the hint. docs/teaching.md says which
    exercises are checked only when they are handed in.

    Example: labkit release ../course-for-students
    """
    from labkit.classroom import edition

    echo(path_of(edition.release(folder)))


@app.command()
def minutes():
    """Write how many minutes each lesson takes.

    They go into first cells, README.md and docs/teaching.md, where the plans for a term and a
    workshop get minutes, exercises and points of the sections that they name. The formula counts
    words, lines of code, pictures, tables, predictions and exercises.

    Example: labkit minutes
    """
    from labkit.authoring.minutes import write

    for name, lesson in write().items():
        echo(f"{name:28} {lesson.minutes:4} min, {lesson.exercises} of them exercises")
