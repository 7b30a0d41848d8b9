"""Reads the folder of a class: every folder and every file in it is taken for a student.

Nothing that was handed in runs here. Only small regular files are read: no link, no pipe, no
device.
"""

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from labkit.classroom import grading

MAX_BYTES = 64 * 2**20  # of a notebook; with all its pictures one of the course has less than 5 MB
MAX_NAMES = 5  # of files in a reason
# entries in the folder of a class that are no student
NOBODY = {"grades.csv", "grades.html", ".git", ".DS_Store", ".ipynb_checkpoints", "__MACOSX"}
# folders of my-lessons/ that nobody hands in; hidden ones are left out, too
COPIES = {"old", "changes"}


class Submission(NamedTuple):
    """The notebook that one student handed in for one lesson.

    answers    {exercise id: (import statements, source)}, as `grading.exercise_cells` returns it
    otherwise  (verdict, reason) for each exercise that is not in `answers`
    """

    answers: dict
    otherwise: tuple[str, str]


class Student(NamedTuple):
    """One entry in the folder of a class.

    name     name of the folder or file as text; bytes that are no UTF-8 become �
    lessons  {name of a lesson: `Submission`} of the lessons that were handed in
    missing  (verdict, reason) for each exercise of a lesson that was not handed in
    """

    name: str
    lessons: dict
    missing: tuple[str, str]

    def of(self, lesson):
        """Return the `Submission` for a lesson; one without answers where it was not handed in."""
        return self.lessons.get(lesson) or Submission({}, self.missing)


def read_class(folder: Path) -> list[Student]:
    """Return a `Student` for each entry in the folder of a class, ordered by name."""
    paths = sorted(path for path in folder.iterdir() if path.name not in NOBODY)
    return [_read_student(path) if path.is_dir() else _stray(path) for path in paths]


def _stray(path):
    """Return the `Student` for a file that lies beside the students' folders.

    It has no lessons, and "not graded" for a verdict.
    """
    reason = (
        f"{_text(path.name)} lies beside the students' folders: unpack it, or put it, into a "
        "folder of its own."
    )
    return Student(_text(path.name), {}, ("not graded", reason))


def _read_student(folder):
    """Return the `Student` of a folder; the notebooks may lie anywhere in the folder."""
    paths_by_lesson = {}
    other_paths = []
    problems = []
    for path in _entries(folder, problems):
        lesson = grading.lesson_named_by(path) if path.suffix.lower() == ".ipynb" else None
        if lesson is None:
            other_paths.append(path)
        else:
            paths_by_lesson.setdefault(lesson, []).append(path)
    lessons = {lesson: _read(folder, paths) for lesson, paths in paths_by_lesson.items()}

    # Why the other lessons are missing: other files in the folder may hold them.
    if problems:
        return Student(
            _text(folder.name),
            lessons,
            ("not graded", f"It cannot be read: {_text(str(problems[0]))}"),
        )
    missing = "No notebook of this lesson was handed in."
    if not lessons:
        missing += f" The folder holds {_names(folder, other_paths) or 'nothing'}."
    return Student(_text(folder.name), lessons, ("missing", missing))


def _entries(folder, problems) -> Iterator[Path]:
    """Yield the paths of the files in a student's folder, at any depth, in a fixed order.

    Hidden files are left out, and so are the folders of `COPIES` and `NOBODY`. A link to a folder,
    or a folder named like a notebook, is yielded too, and not entered.

    problems  list to which the errors of folders that cannot be read are added
    """
    for parent, folder_names, file_names in os.walk(folder, onerror=problems.append):
        # A folder with the name of a notebook is yielded as a file would be, and so is a link to a
        # folder: neither is entered.
        leaf_names = [
            name
            for name in folder_names
            if name.lower().endswith(".ipynb") or Path(parent, name).is_symlink()
        ]
        folder_names[:] = sorted(
            name
            for name in folder_names
            if name not in {*leaf_names, *COPIES, *NOBODY} and not name.startswith(".")
        )
        for name in sorted([*file_names, *leaf_names]):
            if not name.startswith("."):
                yield Path(parent, name)


def _read(folder, paths):
    """Return the `Submission` for one lesson.

    It has no answers, and the verdict "not graded", where there are several notebooks of the
    lesson, or where the notebook cannot be read.

    folder  folder of the student
    paths   the notebooks of the lesson in this folder, at least one
    """
    if len(paths) > 1:
        return Submission(
            {},
            ("not graded", f"Several notebooks of this lesson: leave one. {_names(folder, paths)}"),
        )
    [path] = paths
    reason = _unreadable(path)
    if reason is None:
        try:
            return Submission(grading.exercise_cells(path), ("missing", grading.GONE))
        except Exception as error:  # a file of that name may hold anything
            reason = f"cannot be read as a notebook: {type(error).__name__}: {error}"
    return Submission({}, ("not graded", f"{_names(folder, paths)} {reason}"))


def _unreadable(path):
    """Return why a file must not be opened, as the rest of a sentence, or None where it may be.

    A link, a pipe, a device and a file of more than `MAX_BYTES` are not opened. Reading a pipe
    would wait for ever, and some devices have no end.
    """
    try:
        status = path.lstat()
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    if stat.S_ISLNK(status.st_mode):
        return "is a link: ask for the file itself."
    if not stat.S_ISREG(status.st_mode):
        return "is no file, but a folder, a pipe or a device."
    if status.st_size > MAX_BYTES:
        return (
            f"has {status.st_size / 1e6:,.0f} MB; a notebook has at most {MAX_BYTES / 1e6:.0f} MB."
        )
    return None


def _names(folder, paths):
    """Return the names of paths below a student's folder as one text, with commas.

    After `MAX_NAMES` names, the text says how many more there are.
    """
    names = [_text(str(path.relative_to(folder))) for path in paths[:MAX_NAMES]]
    if len(paths) > MAX_NAMES:
        names.append(f"{len(paths) - MAX_NAMES} more")
    return ", ".join(names)


def _text(name):
    """Return a file name as text that can be written; bytes that are no UTF-8 become �."""
    return os.fsencode(name).decode(errors="replace")
