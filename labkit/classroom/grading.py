"""Grading a notebook: what a student wrote is checked in fresh processes, which no other cell can
reach.

What    the source of each exercise cell, with the notebook's imports and nothing else of it, is
        checked by the course's own checker; the kernel that ran the notebook is not asked
Limits  no proof: an answer and its checker share a process. A reader of the answer sees what tries
        that
"""

import ast
import re
import signal
from functools import partial

import psutil

from labkit.classroom import _grader
from labkit.device.child import PATIENCE, ChildEnded, run_in_child
from labkit.errors import LabError
from labkit.files import notebooks
from labkit.lesson import exercises
from labkit.lesson._exercise import LONGEST_S
from labkit.notebook import read_notebook

COMPUTING_S = LONGEST_S + 20  # for an answer that does not hear the limit of its check
MEMORY = min(8 * 2**30, psutil.virtual_memory().total // 3)  # bytes that an answer may take
OUTSIDE = (signal.SIGINT, signal.SIGTERM, signal.SIGKILL, signal.SIGHUP)
ENDED = "Your answer ended the process that checks it."
ENDLESS = "Your answer had not finished after {} seconds of computing. Does a call in it never end?"
ASLEEP = (
    "Your answer had not finished after {} seconds, and hardly computed. What does it wait for?"
)
STOPPED = (
    "The grading was stopped by a signal: by the system, which does so when memory is full, or by "
    "the answer itself. "
    "Read the answer, and grade again."
)
GONE = "The notebook does not ask for it any more: its cell is gone."


def judge(exercise_id: str, imports: list[str], source: str) -> tuple[str, str]:
    """Return ("passed" | "wrong" | "unsolved" | "not graded", message) of a cell, as
    `exercise_cells` gives it.

    The cell runs in a process of its own: what it does to this, or takes of the machine, ends
    there. What the cell starts is ended with it (`labkit.device.child` says how).
    """
    try:
        return run_in_child(
            partial(_grader.grade_silently, _lesson_of(exercise_id), exercise_id, imports, source),
            seconds=COMPUTING_S,
            memory=MEMORY,
        )
    except ChildEnded as error:
        if error.returncode is None:
            return "wrong", ASLEEP.format(PATIENCE * COMPUTING_S)
        if error.returncode == -signal.SIGXCPU:
            return "wrong", ENDLESS.format(COMPUTING_S)
        if -error.returncode in OUTSIDE:
            return "not graded", STOPPED
        return "wrong", ENDED


def _lesson_of(exercise_id):
    """Return the name of the lesson that an exercise belongs to, such as
    "15_pruning_and_coding".
    """
    for module in exercises.modules():
        lesson_name = module.removeprefix("l")
        if exercise_id in [task.id for task in exercises.of(lesson_name)]:
            return lesson_name
    raise LabError(f"There is no exercise {exercise_id!r}.", fix="labkit list")


def lesson_named_by(path):
    """Return the name of the lesson that a file is called after, or None.

    A name holds that of the lesson ("bo_12345_00_start_here (1).ipynb"), or begins with its number
    ("00 by Bo.ipynb").
    """
    names = [lesson.stem for lesson in notebooks()]
    for name in names:
        if re.search(rf"(?<!\d){name}", path.name, flags=re.IGNORECASE):
            return name
    for name in names:
        if re.match(rf"{name[:2]}(?!\d)", path.name):
            return name
    return None


def grade(path, *, solved=False):
    """Return {exercise id: ("passed" | "wrong" | "unsolved" | "missing" | "not graded", message)}
    of a notebook.

    path    the notebook as the student handed it in
    solved  fill in the reference answers first
    """
    lesson = lesson_named_by(path)
    tasks = exercises.of(lesson) if lesson else []
    verdicts = {task.id: ("missing", GONE) for task in tasks}
    for exercise_id, (imports, source) in exercise_cells(path, solved=solved).items():
        verdicts[exercise_id] = judge(exercise_id, imports, source)
    return verdicts


def flaw(path, *, solved):
    """Return why a notebook does not pass, or None: the exercises that do not, or were not
    graded.
    """
    problems = []
    for exercise_id, (verdict, message) in grade(path, solved=solved).items():
        if verdict != "passed":
            problems.append(f"Exercise {exercise_id!r} is {verdict}, graded apart: {message}")
    return " ".join(problems) or None


def exercise_cells(path, *, solved=False):
    """Return {exercise id: (lines of import before it, source of its cell)} of a notebook.

    solved  fill in the reference answers
    """
    imports: list[str] = []
    scripts = {}
    answers = {}
    for cell in read_notebook(path).cells:
        if cell.cell_type != "code":
            continue
        source = cell.source
        if exercises.script_in(source):
            script_id = exercises.script_in(source)
            scripts[script_id] = exercises.fill(source) if solved else source
            continue

        # What the exercises of a cell need: the imports so far, and its source.
        source = re.sub("^[%!].*", "pass", source, flags=re.MULTILINE)  # commands of IPython
        imports += _imports(source)
        for exercise_id in exercises.ids_in(source):
            if exercise_id in scripts:
                answers[exercise_id] = ([], scripts[exercise_id])
            elif exercise_id in exercises.registry():
                answer = exercises.fill(source) if solved else source
                answers[exercise_id] = (list(imports), answer)
    return answers


def _imports(source):
    """Return the lines of import that stand by themselves in a cell, or in a `try` of it."""
    try:
        statements = ast.parse(source).body
    # half a character, or brackets without end
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    lines = []
    for statement in statements:
        inner_statements = statement.body if isinstance(statement, ast.Try) else [statement]
        for inner in inner_statements:
            if isinstance(inner, (ast.Import, ast.ImportFrom)):
                lines.append(ast.unparse(inner))
    return lines
