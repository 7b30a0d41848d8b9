"""Commands for an instructor: grade, release."""

from pathlib import Path

from typer import echo

from labkit.cli.app import app, path_of


@app.command()
def grade(folder: Path):
    """Grade what a class handed in, FOLDER/STUDENT/NN_*.ipynb.

    Each answer is checked alone, in a process of its own with limits of time and memory. FOLDER/grades.csv has a line
    per student and exercise, FOLDER/grades.html the reasons. The students' code runs with your rights: docs/teaching.md
    has the line for a container.

    folder  Holds a folder per student, with the notebooks handed in.

    Example: labkit grade handed-in
    """
    from labkit.lesson import handed_in

    for path in handed_in.grade(folder, tell=echo):
        echo(path_of(path))


@app.command()
def release(folder: Path):
    """Write the course without solutions, for students.

    An exercise that is not solved lends the results of its reference answer, not its source. docs/teaching.md says what
    that hides, and what not.

    folder  Where the student edition goes: a new folder.

    Example: labkit release ../course-for-students
    """
    from labkit.lesson import edition

    echo(path_of(edition.release(folder)))
