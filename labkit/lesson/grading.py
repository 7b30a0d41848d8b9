"""Grading a notebook: what a student wrote is checked in a fresh process, which no other cell can reach.

What    the source of each exercise cell, with the notebook's imports and nothing else of it, is checked by the course's
        own checker; the kernel that ran the notebook is not asked
Limits  no proof: an answer and its checker share the fresh process. What reaches for the checker is refused by its
        source (`_grader`); where somebody finds a way round that, a reader of the answer still sees it
"""

import ast
import json
import os
import re
import subprocess
import sys
from pathlib import Path

from labkit.lesson import exercises

LIMIT_S = 600  # for the exercises of one notebook


def grade(path, *, solved=False):
    """{exercise id: ("passed" | "wrong" | "unsolved" | "missing", message)} of a notebook.

    path    the notebook as the student handed it in
    solved  fill in the reference answers first
    """
    found = _asked(path, solved)
    wanted = [*_of_lesson(path), *found]
    verdicts = dict.fromkeys(wanted, ("missing", "The notebook does not ask for it any more."))
    own = {"PYTHONPATH": str(Path(__file__).resolve().parents[2]), "OMP_NUM_THREADS": "2"}
    environment = {name: text for name, text in os.environ.items() if name not in ("LABKIT_STRICT", "PYTHONSTARTUP")}
    if not found:
        return verdicts
    command = [sys.executable, "-P", "-W", "ignore", "-m", "labkit.lesson._grader"]
    try:
        done = subprocess.run(command, input=json.dumps([[name, *cell] for name, cell in found.items()]), text=True,
                              capture_output=True, timeout=LIMIT_S, env=environment | own)  # fmt: skip
        verdicts |= {name: tuple(verdict) for name, verdict in json.loads(done.stdout).items()}
    except (subprocess.TimeoutExpired, ValueError):
        verdicts |= dict.fromkeys(found, ("wrong", "The process that grades did not come to its end."))
    return verdicts


def flaw(path, *, solved=False):
    """Why a notebook does not pass, or None: the first exercise that does not."""
    for name, (verdict, message) in grade(path, solved=solved).items():
        if verdict != "passed":
            return f"Exercise {name!r} is {verdict}, graded apart: {message}"
    return None


def _of_lesson(path):
    """The ids of the exercises that the course asks for in the lesson of this name."""
    modules = [lesson for lesson in exercises.lessons() if lesson == f"l{Path(path).stem}"]
    return [task.id for lesson in modules for task in exercises.of(lesson)]


def _asked(path, solved):
    """{exercise id: (lines of import before it, source of its cell)} of a notebook."""
    cells = json.loads(Path(path).read_text(encoding="utf-8"))["cells"]
    imports, found = [], {}
    for cell in (cell for cell in cells if cell["cell_type"] == "code"):
        source = "".join(cell["source"])
        imports += _imports(source)
        for name in re.findall(r"""\bexercise\(["']([\w-]+)["']\)""", source):
            if name in exercises.registry():
                found[name] = (list(imports), exercises.fill(source) if solved else source)
    return found


def _imports(source):
    """The lines of import that stand by themselves in a cell."""
    try:
        tree = ast.parse("\n".join(line for line in source.splitlines() if not line.startswith(("%", "!"))))
    except SyntaxError:
        return []
    return [ast.unparse(node) for node in tree.body if isinstance(node, (ast.Import, ast.ImportFrom))]
