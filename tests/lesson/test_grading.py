"""Grading a notebook apart from its kernel: the cheats that the kernel believes do not pass, honest answers do."""

import json
import math

import pytest
from answers import l01_deployment_fundamentals as others

from labkit.lesson import exercises, grading
from labkit.lesson._grader import Reaches, _require_plain, grade

TASK = exercises.find("image-bytes")
CHECK = '\nimage_bytes = exercise("image-bytes").check(image_bytes)\n'
BY_PROD = "def image_bytes(*shape):\n    return prod(shape)\n"
WRONG = "def image_bytes(*shape):\n    return 5\n"

FIND = "from labkit.lesson import exercises\n"
CHEATS = {
    "an environment variable": ("import os\nos.environ['LABKIT_STRICT'] = '0'", WRONG),
    "the reference": (FIND, "image_bytes = exercises.find('image-bytes').reference"),
    "a patched judge": ("from labkit.lesson import _exercise as e\ne.Task._judge = lambda *a: ('passed', '')", WRONG),
    "a patched verify": (
        FIND + "object.__setattr__(exercises.find('image-bytes'), 'verify', lambda a: None)",
        WRONG,
    ),
    "a patched expect": (
        "import labkit.lesson.exercises.l00_start_here as l\nl.expect = l.expect_close = lambda *a, **k: None",
        WRONG,
    ),
    "an exercise of its own": (
        "class exercise:\n    def __init__(self, name): pass\n    def check(self, answer): return answer",
        WRONG,
    ),
}
INSIDE = {
    "imports the exercises": FIND + "image_bytes = exercises.find('image-bytes').reference",
    "imports by a name": "image_bytes = __import__('labkit.lesson.exercises').find('image-bytes').reference",
    "looks into the modules": "import torch\nimage_bytes = torch.sys.modules['labkit.lesson.exercises'].find('x')",
    "climbs up the frames": "def image_bytes(*a):\n    return (i for i in ()).gi_frame.f_back.f_globals",
    "by an object's classes": "image_bytes = ().__class__.__base__.__subclasses__()",
    "equal to everything": "class A:\n    def __eq__(self, other): return True\nimage_bytes = lambda *a: A()",
    "ends the process": "import os\nos._exit(0)",
    "executes a text": "exec('image_bytes = 1')",
    "a name that is computed": "image_bytes = getattr(TASK, 'ref' + 'erence')",
    "patches a library": "import math\nmath.isclose = lambda *a, **k: True\nimage_bytes = lambda *a: 5",
}


def notebook(folder, *sources):
    """A notebook of these code cells; the last is the exercise."""
    cells = [{"cell_type": "code", "metadata": {}, "source": source} for source in sources]
    path = folder / "handed_in.ipynb"
    path.write_text(json.dumps({"cells": cells}), encoding="utf-8")
    return path


@pytest.mark.parametrize("cheat", CHEATS)
def test_what_the_kernel_would_believe_does_not_pass(tmp_path, cheat):
    first, answer = CHEATS[cheat]
    [(name, cell)] = grading._asked(notebook(tmp_path, first, answer + CHECK), False).items()
    assert grade(name, *cell)[0] == "wrong"


@pytest.mark.slow
def test_a_notebook_is_graded_in_a_process_of_its_own(tmp_path, monkeypatch):
    monkeypatch.setattr(exercises, "find", None)  # what was patched here is not patched there
    found = grading.flaw(notebook(tmp_path, CHEATS["a patched expect"][0], WRONG + CHECK))
    assert "'image-bytes' is wrong, graded apart" in found


@pytest.mark.parametrize("way", INSIDE)
def test_an_answer_that_reaches_for_its_checker_is_refused(way, monkeypatch):
    monkeypatch.setattr(math, "isclose", math.isclose)  # one of them replaces it: put back afterwards, for every test
    verdict, message = grade("image-bytes", [], INSIDE[way] + CHECK)
    assert verdict == "wrong"
    assert "library" in message or "answer" in message


def test_an_honest_answer_passes_with_the_imports_of_the_notebook(tmp_path):
    path = notebook(tmp_path, "import torch\nfrom math import prod", BY_PROD + CHECK)
    [(name, cell)] = grading._asked(path, False).items()
    assert grade(name, *cell) == ("passed", "")


def test_a_stub_is_unsolved_and_is_filled_when_asked_to(tmp_path):
    stub = "def image_bytes(*shape):\n    ...  # your code\n" + CHECK
    for solved, verdict in ((False, "unsolved"), (True, "passed")):
        [(name, cell)] = grading._asked(notebook(tmp_path, stub), solved).items()
        assert grade(name, *cell)[0] == verdict


def test_an_exercise_that_is_gone_from_a_lesson_is_missing(tmp_path):
    path = notebook(tmp_path, "x = 1").rename(tmp_path / "01_deployment_fundamentals.ipynb")
    found = grading.grade(path)
    assert {verdict for verdict, _ in found.values()} == {"missing"}
    assert set(found) == set(others.WRONG)


def test_an_answer_that_needs_another_cell_is_told_so():
    verdict, message = grade("image-bytes", [], "def image_bytes(*a):\n    return helper(*a)" + CHECK)
    assert verdict == "wrong"
    assert "graded alone" in message


@pytest.mark.parametrize("name", exercises.registry())
def test_every_reference_answer_is_plain(name):
    import ast

    _require_plain(ast.parse(exercises.find(name).solution))


def test_what_is_not_plain_is_noticed():
    import ast

    with pytest.raises(Reaches):
        _require_plain(ast.parse("import sys"))
