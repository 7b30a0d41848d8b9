"""Grading a notebook: what a student wrote is checked in fresh processes, which no other cell can reach.

What    the source of each exercise cell, with the notebook's imports and nothing else of it, is checked by the course's
        own checker; the kernel that ran the notebook is not asked
Limits  no proof: an answer and its checker share a process. A reader of the answer sees what tries that
"""

import ast
import json
import os
import re
import subprocess
import sys
from contextlib import AbstractContextManager
from pathlib import Path
from threading import Timer

from labkit.lesson import exercises

LIMIT_S = 300  # for one answer and, at first, the imports; the process keeps a shorter limit, unless it was stopped
STOPPED = "The grading was stopped, by a signal or because it took too long. Grade again."
GRADER = "from labkit.lesson import _grader\n_grader.main()"
GONE = "The notebook does not ask for it any more: its cell is gone."


class Grader(AbstractContextManager):
    """Gives verdicts on answers; each has a process of its own, forked from one that has imported the checks.

    A context: what it has begun ends with it.
    """

    _process = None

    def __exit__(self, *error):
        if self._process:
            self._process.kill()
            self._process.communicate()

    def judge(self, exercise_id, imports, source):
        """("passed" | "wrong" | "unsolved" | "not graded", message) of a cell, as `asked` gives it."""
        if self._process is None or self._process.poll() is not None:  # an answer may have ended it
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-W", "ignore", "-c", GRADER],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=os.environ | {"PYTHONPATH": Path(__file__).resolve().parents[2], "OMP_NUM_THREADS": "2"},
            )
        late = Timer(LIMIT_S, self._process.kill)
        late.start()
        try:
            self._process.stdin.write(json.dumps([exercise_id, imports, source]).encode() + b"\n")
            self._process.stdin.flush()
            return tuple(json.loads(self._process.stdout.readline()))
        except (OSError, ValueError):
            self._process.wait()
            return "not graded", STOPPED
        finally:
            late.cancel()


def grade(path, *, solved=False):
    """{exercise id: ("passed" | "wrong" | "unsolved" | "missing" | "not graded", message)} of a notebook.

    path    the notebook as the student handed it in
    solved  fill in the reference answers first
    """
    with Grader() as grader:
        found = {name: grader.judge(name, *cell) for name, cell in asked(path, solved=solved).items()}
    lesson = exercises.lessons().get(path.name[:2])
    wanted = [task.id for task in exercises.of(lesson)] if lesson else []
    return dict.fromkeys(wanted, ("missing", GONE)) | found


def flaw(path, *, solved):
    """Why a notebook does not pass, or None: the exercises that do not, or were not graded."""
    said = [
        f"Exercise {name!r} is {verdict}, graded apart: {message}"
        for name, (verdict, message) in grade(path, solved=solved).items()
        if verdict != "passed"
    ]
    return " ".join(said) or None


def asked(path, *, solved=False):
    """{exercise id: (lines of import before it, source of its cell)} of a notebook."""
    cells = json.loads(path.read_bytes())["cells"]
    imports = []
    found = {}
    for cell in cells:
        if cell["cell_type"] != "code":
            continue
        source = re.sub("^[%!].*", "pass", "".join(cell["source"]), flags=re.MULTILINE)  # commands of IPython
        imports += _imports(source)
        for name in exercises.asked(source):
            if name in exercises.registry():
                found[name] = (list(imports), exercises.fill(source) if solved else source)
    return found


def _imports(source):
    """The lines of import that stand by themselves in a cell, or in a `try` of it."""
    try:
        waiting = ast.parse(source).body
    except SyntaxError:
        return []
    found = []
    for node in waiting:
        inner = node.body if isinstance(node, ast.Try) else [node]
        found += [ast.unparse(each) for each in inner if isinstance(each, (ast.Import, ast.ImportFrom))]
    return found
