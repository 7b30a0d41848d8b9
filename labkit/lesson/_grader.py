"""The process that grades what a student wrote, from its source alone. `labkit.lesson.grading` calls `main`.

It reads [[exercise id, imports of the notebook, source of the cell], ...] as JSON and writes one line
[exercise id, verdict, message] for each. No other cell of the notebook runs here, so what one of them changes does not
count. Time and memory are limited; nothing else is forbidden.
"""

import json
import linecache
import os
import resource
import sys
from contextlib import redirect_stdout, suppress
from pathlib import Path
from types import SimpleNamespace

from labkit import lesson
from labkit.lesson import exercises
from labkit.lesson._exercise import verdict_on

MEMORY = 8 * 2**30  # bytes that an answer may take


class _HandedIn(BaseException):
    """The cell has its answer checked: what follows in it is not graded."""


def main():
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, resource.getrlimit(resource.RLIMIT_DATA)[1]))
    for exercise_id, imports, source in json.loads(sys.stdin.read()):
        print(json.dumps([exercise_id, *grade(exercise_id, imports, source)]), file=out, flush=True)


def grade(exercise_id, imports, source):
    """("passed" | "wrong" | "unsolved", message) of the source of one exercise cell.

    imports  lines of import of the cells before it; one that fails here is left out
    """
    verify = exercises.find(exercise_id).verify
    with Path(os.devnull).open("w", encoding="utf-8") as nowhere, redirect_stdout(nowhere):
        verdict, message = verdict_on(lambda: _handed_in(exercise_id, imports, source), verify)
    if "NameError" in message:
        message += " (graded alone: the cell must hold all it needs but the notebook's imports)"
    return verdict, message


def _handed_in(exercise_id, imports, source):
    """Run the cell up to the line that has its answer checked; returns that answer, None when there is no such line."""

    def exercise(name):
        return SimpleNamespace(check=lambda answer: _hand_in(answer) if name == exercise_id else answer)

    lesson.exercise = exercise
    space = {"__name__": "__main__"}
    for line in imports:
        with suppress(Exception):
            exec(line, space)
    space["exercise"] = exercise
    place = f"<cell of {exercise_id}>"
    linecache.cache[place] = (len(source), None, source.splitlines(keepends=True), place)  # for inspect.getsource
    try:
        exec(compile(source, place, "exec"), space)
    except _HandedIn as found:
        return found.args[0]
    return None


def _hand_in(answer):
    raise _HandedIn(answer)
