"""Grading a notebook apart from its kernel: the cheats that the kernel believes do not pass,
honest answers do.
"""

import inspect
from pathlib import Path

import nbformat
import pytest
from answers import l01_deployment_fundamentals as others

from labkit import lesson
from labkit.classroom import _grader, grading
from labkit.device import child
from labkit.lesson import _exercise, exercises

TASK = exercises.find("image-bytes")
NOTEBOOKS = sorted((Path(__file__).parents[2] / "notebooks").glob("[0-9][0-9]_*.ipynb"))
CHECK = '\nimage_bytes = exercise("image-bytes").check(image_bytes)\n'
BY_PROD = "def image_bytes(*shape):\n    return prod(shape)\n"
WRONG = "def image_bytes(*shape):\n    return 5\n"

FIND = "from labkit.lesson import exercises\n"
CHEATS = {
    "a patched verdict": (
        "from labkit.lesson import _exercise as e\ne.verdict_on = lambda *a: ('passed', '')",
        WRONG,
    ),
    "a patched verify": (
        FIND + "object.__setattr__(exercises.find('image-bytes'), 'verify', lambda a: None)",
        WRONG,
    ),
    "a patched expect": (
        "import labkit.lesson.exercises.l03_what_limits_speed as l\nl.expect = l.expect_close = "
        "lambda *a, **k: None",
        WRONG,
    ),
    "an exercise of its own": (
        "class exercise:\n    def __init__(self, name): pass\n    def check(self, "
        "answer): return answer",
        WRONG,
    ),
}
HONEST = {
    "opens a file": "with open(os.devnull) as file:\n        file.read()",
    "asks the system": "os.getpid(); os.environ.get('HOME')",
    "uses what a list would forbid": "getattr(torch, 'ones')(1); eval('1'); vars(math); "
    "setattr(os, 'x_y', 1)",
}
HARMFUL = {  # {exercise: (its first line, what is said)}
    "least-seconds": ("__import__('os')._exit(0)", "ended the process"),
    "image-bytes": ("bytearray(30 * 2**30)", "MemoryError"),
    "response-times": ("raise SystemExit(0)", "SystemExit"),
    "is-real": ("return None", "Nothing here yet"),
}


def grade(exercise_id, imports, source):
    """What the process of an answer does, here."""
    return _grader.grade(grading._lesson_of(exercise_id), exercise_id, imports, source)


@pytest.fixture(autouse=True)
def own_word(monkeypatch):
    """The grader puts a word of its own in the place of `exercise`: it is put back after each
    test.
    """
    monkeypatch.setattr(lesson, "exercise", lesson.exercise)


def notebook(folder, *sources):
    """A notebook of these code cells; the last is the exercise."""
    path = folder / "handed_in.ipynb"
    nbformat.write(
        nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in sources]),
        path,
    )
    return path


@pytest.mark.parametrize("cheat", CHEATS)
def test_what_the_kernel_would_believe_does_not_pass(tmp_path, cheat):
    first, answer = CHEATS[cheat]
    [(name, cell)] = grading.exercise_cells(notebook(tmp_path, first, answer + CHECK)).items()
    assert grade(name, *cell)[0] == "wrong"


@pytest.mark.slow
def test_a_notebook_is_graded_in_a_process_of_its_own(tmp_path, monkeypatch):
    monkeypatch.setattr(exercises, "find", None)  # what was patched here is not patched there
    found = grading.flaw(
        notebook(tmp_path, CHEATS["a patched expect"][0], WRONG + CHECK), solved=False
    )
    assert "'image-bytes' is wrong, graded apart" in found


@pytest.mark.parametrize("way", HONEST)
def test_honest_code_may_use_files_and_the_system(way):
    answer = (
        f"import math, os, sys\nimport torch\ndef image_bytes(*shape):\n    {HONEST[way]}\n    "
        "return math.prod(shape)"
    )
    assert grade("image-bytes", [], answer + CHECK) == ("passed", "")


@pytest.mark.slow
def test_an_answer_that_ends_the_process_or_takes_its_memory_is_wrong_and_the_others_are_graded(
    tmp_path,
):
    cells = [
        f"def answer(*given):\n    {line}\n\nexercise('{name}').check(answer)"
        for name, (line, _) in HARMFUL.items()
    ]
    found = grading.grade(notebook(tmp_path, *cells))
    assert [verdict for verdict, _ in found.values()] == ["wrong", "wrong", "wrong", "unsolved"]
    for name, (_, said) in HARMFUL.items():
        assert said in found[name][1]


def test_an_answer_that_never_ends_is_wrong(monkeypatch):
    monkeypatch.setattr(_exercise, "LONGEST_S", 0.05)
    verdict, message = grade(
        "image-bytes", [], "def image_bytes(*shape):\n    while True:\n        pass" + CHECK
    )
    assert verdict == "wrong"
    assert "had not finished" in message


@pytest.mark.slow
def test_an_answer_that_only_waits_is_wrong(tmp_path, monkeypatch):
    # of which a process needs some to import the checks
    monkeypatch.setattr(grading, "COMPUTING_S", 10)
    # by the clock it has no more than that
    monkeypatch.setattr(grading, "PATIENCE", 1)
    monkeypatch.setattr(child, "PATIENCE", 1)
    waits = "def image_bytes(*shape):\n    import time\n    time.sleep(10**6)\n"
    found = grading.grade(notebook(tmp_path, waits + CHECK))
    assert found == {"image-bytes": ("wrong", grading.ASLEEP.format(10))}


@pytest.mark.slow
def test_an_answer_that_forks_is_graded_once_and_its_processes_end(tmp_path):
    forks = (
        "def image_bytes(*shape):\n    import os, time\n    if not os.fork():\n        "
        "time.sleep(600)\n"
    )
    forks += "    return shape[0] * shape[1] * shape[2] * shape[3]\n"
    assert grading.grade(notebook(tmp_path, forks + CHECK)) == {"image-bytes": ("passed", "")}


@pytest.mark.slow
def test_an_answer_that_a_signal_stops_is_not_graded_and_the_next_one_is(tmp_path):
    stop = (
        "def f(*given):\n    import os\n    os.kill(os.getpid(), "
        "15)\nexercise('least-seconds').check(f)"
    )
    found = grading.grade(
        notebook(
            tmp_path,
            BY_PROD + CHECK,
            stop,
            WRONG.replace("image_bytes", "f") + "exercise('is-real').check(f)",
        )
    )
    assert found["least-seconds"] == ("not graded", grading.STOPPED)
    assert found["is-real"][0] == "wrong"


def test_an_error_is_shown_with_the_line_of_the_students_code_that_met_it():
    answer = (
        "import numpy as np\ndef image_bytes(*shape):\n    return np.ones(3) @ "
        "np.ones(len(shape))\n"
    )
    message = grade("image-bytes", [], answer + CHECK)[1]
    assert "ValueError" in message
    assert message.endswith(", in line 3: return np.ones(3) @ np.ones(len(shape))")


def test_torchs_own_not_implemented_is_an_error_of_the_answer():
    answer = "def image_bytes(*shape):\n    raise NotImplementedError('not for Half')\n"
    assert grade("image-bytes", [], answer + CHECK)[0] == "wrong"
    assert grade("image-bytes", [], answer.replace("('not for Half')", "") + CHECK)[0] == "unsolved"


def test_an_honest_answer_passes_with_the_imports_of_the_notebook(tmp_path):
    path = notebook(tmp_path, "import torch\nfrom math import prod", BY_PROD + CHECK)
    [(name, cell)] = grading.exercise_cells(path).items()
    assert grade(name, *cell) == ("passed", "")


def test_an_answer_is_graded_without_imports_of_the_cells_below_it(tmp_path):
    path = notebook(tmp_path, "import torch", BY_PROD + CHECK, "from math import prod")
    imports, source = grading.exercise_cells(path)["image-bytes"]
    assert imports == ["import torch"]
    verdict, message = grade("image-bytes", imports, source)
    assert verdict == "wrong" and "prod" in message


def test_imports_that_a_notebook_tries_are_given_too(tmp_path):
    tried = "try:\n    from math import prod\nexcept ImportError:\n    prod = None"
    [(name, cell)] = grading.exercise_cells(notebook(tmp_path, tried, BY_PROD + CHECK)).items()
    assert grade(name, *cell) == ("passed", "")


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_each_cell_of_the_course_can_be_graded_alone_and_is_unsolved_as_it_is_given(path):
    found = {name: grade(name, *cell) for name, cell in grading.exercise_cells(path).items()}
    assert {verdict for verdict, _ in found.values()} <= {"unsolved"}, found


@pytest.mark.parametrize("above", ["", "@triton.jit\n"])
def test_a_kernel_is_graded_as_a_student_writes_it(above):
    [path] = [path for path in NOTEBOOKS if path.stem.startswith("09")]
    imports, _ = grading.exercise_cells(path)["fused-kernel"]
    source = above + inspect.getsource(exercises.find("fused-kernel").reference)
    assert grade(
        "fused-kernel", imports, source + "\nexercise('fused-kernel').check(fused_kernel)"
    ) == ("passed", "")


def test_a_stub_is_unsolved_and_is_filled_when_asked_to(tmp_path):
    stub = "def image_bytes(*shape):\n    ...  # your code\n" + CHECK
    for solved, verdict in ((False, "unsolved"), (True, "passed")):
        [(name, cell)] = grading.exercise_cells(notebook(tmp_path, stub), solved=solved).items()
        assert grade(name, *cell)[0] == verdict


def test_an_exercise_that_is_gone_from_a_lesson_is_missing_whatever_follows_the_number(tmp_path):
    path = notebook(tmp_path, "x = 1").rename(tmp_path / "01 by Ada (1).ipynb")
    found = grading.grade(path)
    assert {verdict for verdict, _ in found.values()} == {"missing"}
    assert set(found) == set(others.WRONG)


def test_an_answer_that_needs_another_cell_is_told_so():
    verdict, message = grade(
        "image-bytes", [], "def image_bytes(*a):\n    return helper(*a)" + CHECK
    )
    assert verdict == "wrong"
    assert "graded alone" in message


def test_only_what_stands_above_the_check_is_graded():
    after = "\nraise ValueError('the rest of the cell needs another one')"
    assert grade("image-bytes", ["from math import prod"], BY_PROD + CHECK + after) == (
        "passed",
        "",
    )
    assert grade("image-bytes", [], BY_PROD)[0] == "unsolved", "it is never handed in"
