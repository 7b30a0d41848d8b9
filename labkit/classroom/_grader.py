"""Grades the source of one exercise cell; `labkit.classroom.grading` calls it in a new process.

No other cell of the notebook runs in that process, so another cell cannot change the verdict. Time
and memory are limited; nothing else is forbidden.
"""

import linecache
import os
from contextlib import redirect_stdout, suppress
from pathlib import Path
from types import SimpleNamespace

from labkit import lesson
from labkit.lesson import exercises, mine
from labkit.lesson._exercise import verdict_on

MAX_CHARACTERS = 4000  # of a message


class _HandedIn(BaseException):
    """Raised where a cell has its answer checked, to end the cell there.

    The rest of the cell is not graded.

    args  a tuple with one element, the answer
    """


def grade(lesson_name: str, exercise_id: str, imports: list[str], source: str) -> tuple[str, str]:
    """Grade one exercise cell. Returns (verdict, message).

    The verdict is "passed", "wrong", "unsolved" or "not checked". The message says why, in at most
    `MAX_CHARACTERS` characters.

    lesson_name  name of the exercise's lesson, such as "15_pruning_and_coding"; only the exercises
                 of this lesson are imported
    exercise_id  id of the exercise
    imports      import statements of the notebook up to this cell; one that fails is left out
    source       source of the cell
    """
    mine.make_importable()
    [task] = [task for task in exercises.of(lesson_name) if task.id == exercise_id]
    with Path(os.devnull).open("w", encoding="utf-8") as nowhere, redirect_stdout(nowhere):
        verdict, message = verdict_on(lambda: _handed_in(exercise_id, imports, source), task.verify)
    if "NameError" in message:
        message += " (graded alone: the cell must hold all it needs but the notebook's imports)"
    return verdict, message[:MAX_CHARACTERS]


def grade_silently(
    lesson_name: str, exercise_id: str, imports: list[str], source: str
) -> tuple[str, str]:
    """Grade one exercise cell, with the arguments and result of `grade`, and discard all output.

    An answer may print without end. Call this in a new process only, because afterwards the process
    can print nothing more.
    """
    with Path(os.devnull).open("wb") as nowhere:
        os.dup2(nowhere.fileno(), 1)
        os.dup2(nowhere.fileno(), 2)
    return grade(lesson_name, exercise_id, imports, source)


def _handed_in(exercise_id, imports, source):
    """Run the source of a cell up to `exercise(exercise_id).check(answer)`, and return that answer.

    Returns None where the cell has no such line. Where the exercise asks for a script, the cell is
    not run, because the check of the exercise runs it. Then the script is returned, an
    `exercises.Script`.
    """
    if isinstance(exercises.find(exercise_id).reference, exercises.Script):
        return exercises.Script(source.partition("\n")[2]) if exercises.script_in(source) else None

    def exercise(name):
        def check(answer):
            if name == exercise_id:
                raise _HandedIn(answer)
            return answer

        return SimpleNamespace(
            check=check, **dict.fromkeys(("show", "hint", "solution"), lambda: None)
        )

    lesson.exercise = exercise
    variables = {"__name__": "__main__", "exercise": exercise}
    for line in imports:
        with suppress(Exception):
            exec(line, variables)
    file_name = f"<cell of {exercise_id}>"
    # For inspect.getsource, which a checker may call.
    linecache.cache[file_name] = (len(source), None, source.splitlines(keepends=True), file_name)
    try:
        exec(compile(source, file_name, "exec"), variables)
    except _HandedIn as handed_in:
        return handed_in.args[0]
    return None
