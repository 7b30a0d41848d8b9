"""Grading a notebook: what a student wrote is checked in a fresh process, which no other cell can reach.

What    the source of each exercise cell, with the notebook's imports and nothing else of it, is checked by the course's
        own checker; the kernel that ran the notebook is not asked
Limits  no proof: an answer and its checker share the fresh process. A reader of the answer sees what tries that
"""

import ast
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

from labkit.lesson import exercises

LIMIT_S = 600  # for the exercises of one notebook; each has `_exercise.LONGEST_S`, unless it hears no signal
ENDED = "Your answer ended the process that checks it."
STOPPED = "The grading was stopped, by a signal or after ten minutes. Grade again. Does a call in the answer never end?"
SIGNALS = {-signal.SIGINT, -signal.SIGTERM, -getattr(signal, "SIGKILL", 9), -getattr(signal, "SIGHUP", 1)}
GONE = "The notebook does not ask for it any more."


def grade(path, *, solved=False):
    """{exercise id: ("passed" | "wrong" | "unsolved" | "missing" | "not graded", message)} of a notebook.

    path    the notebook as the student handed it in
    solved  fill in the reference answers first
    """
    left = _asked(path, solved)
    verdicts = dict.fromkeys([*_of_lesson(path), *left], ("missing", GONE))
    while left:
        found, ended = _in_fresh_process([[name, *cell] for name, cell in left.items()])
        left = {name: cell for name, cell in left.items() if name not in found}
        if ended in SIGNALS:
            found, left = found | dict.fromkeys(left, ("not graded", STOPPED)), {}
        elif left:  # the first of them ended the process, or took too long; the others are graded in another
            found[next(iter(left))] = ("not graded", STOPPED) if ended is None else ("wrong", ENDED)
            left.pop(next(iter(left)))
        verdicts |= found
    return verdicts


def _in_fresh_process(cells):
    """({exercise id: (verdict, message)} as far as the process came, its exit status or None at the limit)."""
    own = {"PYTHONPATH": str(Path(__file__).resolve().parents[2]), "OMP_NUM_THREADS": "2"}
    environment = {name: text for name, text in os.environ.items() if name not in ("LABKIT_STRICT", "PYTHONSTARTUP")}
    command = [sys.executable, "-P", "-W", "ignore", "-c", "from labkit.lesson import _grader\n_grader.main()"]
    try:
        done = subprocess.run(command, input=json.dumps(cells).encode(), stdout=subprocess.PIPE, timeout=LIMIT_S,
                              stderr=subprocess.DEVNULL, env=environment | own)  # fmt: skip
        said, ended = done.stdout, done.returncode
    except subprocess.TimeoutExpired as late:
        said, ended = late.stdout or b"", None
    rows = [json.loads(line) for line in said.splitlines() if line.endswith(b"]")]
    return {name: (verdict, message) for name, verdict, message in rows}, ended


def flaw(path, *, solved=False):
    """Why a notebook does not pass, or None: the first exercise that does not, or was not graded."""
    for name, (verdict, message) in grade(path, solved=solved).items():
        if verdict != "passed":
            return f"Exercise {name!r} is {verdict}, graded apart: {message}"
    return None


def _of_lesson(path):
    """The ids of the exercises that the course asks for in the lesson of this name."""
    lesson = f"l{Path(path).stem}"
    return [task.id for task in exercises.of(lesson)] if lesson in exercises.lessons() else []


def _asked(path, solved):
    """{exercise id: (lines of import before it, source of its cell)} of a notebook."""
    cells = json.loads(Path(path).read_text(encoding="utf-8"))["cells"]
    imports = []
    found = {}
    for cell in (cell for cell in cells if cell["cell_type"] == "code"):
        source = re.sub("^[%!].*", "pass", "".join(cell["source"]), flags=re.MULTILINE)  # commands of IPython
        imports += _imports(source)
        for name in exercises.asked(source):
            if name in exercises.registry():
                found[name] = (list(imports), exercises.fill(source) if solved else source)
    return found


def _imports(source):
    """The lines of import that stand by themselves in a cell."""
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return []
    return [ast.unparse(node) for node in tree.body if isinstance(node, (ast.Import, ast.ImportFrom))]
