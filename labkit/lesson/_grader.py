"""The process that grades what a student wrote, from its source alone. `labkit.lesson.grading` calls `main`.

It reads lines [exercise id, imports of the notebook, source of the cell] of JSON, and writes a line
[verdict, message] for each. No other cell of the notebook runs here, so what one of them changes does not
count. Each answer has a process of its own, a copy of this one, with limits of time and memory; nothing else is
forbidden. What an answer starts is ended with it.
"""

import json
import linecache
import os
import resource
import signal
import sys
import tempfile
import time
from contextlib import redirect_stdout, suppress
from pathlib import Path
from types import SimpleNamespace

import psutil

from labkit import lesson
from labkit.lesson import exercises
from labkit.lesson._exercise import LONGEST_S, verdict_on

MEMORY = min(8 * 2**30, psutil.virtual_memory().total // 3)  # bytes that an answer may take
COMPUTING_S = LONGEST_S + 20  # for an answer that does not hear the limit of its check
WAITING_S = 3 * LONGEST_S  # on the clock, for one that hardly computes
MOST_CHARACTERS = 4000  # of a message
ENDED = "Your answer ended the process that checks it."
ENDLESS = f"Your answer had not finished after {COMPUTING_S} seconds of computing. Does a call in it never end?"
ASLEEP = f"Your answer had not finished after {WAITING_S} seconds, and hardly computed. What does it wait for?"
STOPPED = "The grading was stopped by a signal, as a system does that has no memory left. Grade again."
OUTSIDE = {-signal.SIGINT, -signal.SIGTERM, -signal.SIGKILL, -signal.SIGHUP}


class _HandedIn(BaseException):
    """The cell has its answer checked: what follows in it is not graded."""


def main():
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, resource.getrlimit(resource.RLIMIT_DATA)[1]))
    exercises.registry()  # imported once, for all of them
    for line in sys.stdin:
        print(json.dumps(_apart(out, *json.loads(line))), file=out, flush=True)


def _apart(out, *cell):
    """`grade` in a copy of this process: what the answer does to its process, or takes of the machine, ends there."""
    with tempfile.TemporaryFile(buffering=0) as said:
        child = os.fork()
        if not child:
            os.setsid()  # so that what it starts is ended with it
            out.close()
            resource.setrlimit(resource.RLIMIT_CPU, (COMPUTING_S, COMPUTING_S + 5))
            _tell(said, cell)
        try:
            ended = _wait(child, time.monotonic() + WAITING_S)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(child, signal.SIGKILL)
        said.seek(0)
        with suppress(ValueError):
            return json.loads(said.read())
    if ended is None:
        os.waitpid(child, 0)
        return "wrong", ASLEEP
    if ended == -signal.SIGXCPU:
        return "wrong", ENDLESS
    return ("not graded", STOPPED) if ended in OUTSIDE else ("wrong", ENDED)


def _tell(said, cell):
    """Write the verdict, and end."""
    own = os.getpid()
    try:
        verdict, message = grade(*cell)
        if os.getpid() == own:  # not in a process that the answer has forked
            said.write(json.dumps([verdict, message[:MOST_CHARACTERS]]).encode())
    finally:
        os._exit(0)


def _wait(child, deadline):
    """The exit status of a process, below 0 where a signal ended it; None at the deadline."""
    while time.monotonic() < deadline:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    return None


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
        def check(answer):
            if name == exercise_id:
                raise _HandedIn(answer)
            return answer

        return SimpleNamespace(check=check, solution=lambda: None)

    lesson.exercise = exercise
    space = {"__name__": "__main__", "exercise": exercise}
    for line in imports:
        with suppress(Exception):
            exec(line, space)
    place = f"<cell of {exercise_id}>"
    linecache.cache[place] = (len(source), None, source.splitlines(keepends=True), place)  # for inspect.getsource
    try:
        exec(compile(source, place, "exec"), space)
    except _HandedIn as found:
        return found.args[0]
    return None
