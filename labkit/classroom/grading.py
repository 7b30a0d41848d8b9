"""Grades a notebook: checks each answer of a student in a new process.

The process runs the import statements of the notebook and the source of one exercise cell, and the
course's own checker checks the answer. No other cell runs. Outputs in the notebook do not count.

A "passed" is no proof: an answer and its checker share a process, so an answer could tamper with
the checker. A person who reads the answer sees that.
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

COMPUTING_S = LONGEST_S + 20  # ends an answer that the time limit of its check cannot stop
MEMORY = min(8 * 2**30, psutil.virtual_memory().total // 3)  # bytes that an answer may take
# signals that somebody else may have sent, rather than the answer
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
    """Grade one exercise cell in a process of its own. Returns (verdict, message).

    The verdict is "passed", "wrong", "unsolved", "not checked" or "not graded". "not checked" means
    that this is a student edition whose exercise has no check. "not graded" means that the process
    was ended by a signal that may have come from outside.

    What the cell changes in the process is gone with the process. Other processes that the cell
    starts are ended as well.

    exercise_id  id of the exercise
    imports      import statements of the notebook up to the cell
    source       source of the cell
    Raises       LabError where no lesson has this exercise
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
    """Return the name of an exercise's lesson, such as "15_pruning_and_coding"."""
    for module in exercises.modules():
        lesson_name = module.removeprefix("l")
        if exercise_id in [task.id for task in exercises.of(lesson_name)]:
            return lesson_name
    raise LabError(f"There is no exercise {exercise_id!r}.", fix="labkit list")


def lesson_named_by(path):
    """Return the name of the lesson that a file is named after, or None.

    The file's name contains the lesson's name ("bo_12345_00_start_here (1).ipynb"), or begins with
    the lesson's number ("00 by Bo.ipynb").
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
    """Grade a notebook. Returns {exercise id: (verdict, message)} of all exercises of its lesson.

    The verdict is one of those that `judge` returns, or "missing" where the notebook has no cell
    for the exercise.

    path    path of the notebook as the student handed it in
    solved  True: fill in the reference answers first
    """
    lesson = lesson_named_by(path)
    tasks = exercises.of(lesson) if lesson else []
    verdicts = {task.id: ("missing", GONE) for task in tasks}
    for exercise_id, (imports, source) in exercise_cells(path, solved=solved).items():
        verdicts[exercise_id] = judge(exercise_id, imports, source)
    return verdicts


def flaw(path, *, solved):
    """Return a sentence for each exercise of a notebook that does not pass; None if all pass.

    The sentences, joined to one text, say the verdict and why.

    path    path of the notebook
    solved  True: fill in the reference answers first
    """
    problems = []
    for exercise_id, (verdict, message) in grade(path, solved=solved).items():
        if verdict != "passed":
            problems.append(f"Exercise {exercise_id!r} is {verdict}, graded apart: {message}")
    return " ".join(problems) or None


def exercise_cells(path, *, solved=False):
    """Return {exercise id: (imports, source)} of the exercise cells of a notebook.

    `imports` is a list of the import statements up to the cell, and `source` the source of the
    cell. For an exercise that asks for a script, `imports` is empty, and `source` is that of the
    script's cell.

    path    path of the notebook
    solved  True: fill in the reference answers
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
    """Return the import statements of a cell, as a list of lines.

    These are the statements at the top level, and those directly in a `try` at the top level. The
    list is empty where the cell is not valid Python.
    """
    try:
        statements = ast.parse(source).body
    # such as half a character, or brackets nested too deeply
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    lines = []
    for statement in statements:
        inner_statements = statement.body if isinstance(statement, ast.Try) else [statement]
        for inner in inner_statements:
            if isinstance(inner, (ast.Import, ast.ImportFrom)):
                lines.append(ast.unparse(inner))
    return lines
