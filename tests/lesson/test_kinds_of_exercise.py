"""Exercises that are classes, scripts or open tasks: checked, lent, filled in, graded, and
hidden from students.
"""
# ruff: noqa: PIE790, F841 (a stub has dots)

import dataclasses
import time

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook

from labkit import ledger, lesson
from labkit.classroom import _grader, grading
from labkit.errors import LessonError
from labkit.ledger.rows import Answer
from labkit.lesson import _run, cards, exercises
from labkit.lesson.exercises import Exercise, Script, Wrong, expect, expect_close
from labkit.lesson.exercises._stubs import unwritten


def logged(function):
    """A decorator, as torch.no_grad() is one."""
    import functools

    @functools.wraps(function)
    def wrapped(*arguments):
        return function(*arguments)

    return wrapped


class Counter:
    def __init__(self, start):
        self.count = start

    @logged
    def step(self, by):
        self.count += by
        return self.count


def verify_counter(answer):
    counter = answer(5)
    expect_close(counter.step(3), 8, "from 5, a step of 3")
    expect_close(counter.step(1), 9, "then a step of 1")


ADDER = Script("import sys\n\nprint(sum(map(int, sys.argv[1:])))\n")


def verify_adder(script):
    expect(script.run("2", "3", "4").strip() == "9", "2 3 4: expected 9 on one line.")


def speed(step):
    return 1.0


def verify_speed(answer):
    expect(0 <= answer(3) <= 1, "A speed lies between 0 and 1.")


ABOUT = {"difficulty": 2, "minutes": 7, "hint": "Think of `sum`."}
TASKS = {
    "counter": Exercise(
        id="counter", task="Count.", reference=Counter, verify=verify_counter, importance=3, **ABOUT
    ),
    "adder": Exercise(id="adder", task="Add.", reference=ADDER, verify=verify_adder, **ABOUT),
    "speed": Exercise(
        id="speed",
        task="Choose.",
        reference=speed,
        verify=verify_speed,
        judged_by="the ladder below",
        **ABOUT,
    ),
}


@pytest.fixture(autouse=True)
def running(monkeypatch, capsys):
    monkeypatch.setattr(exercises, "registry", lambda: TASKS)
    begun = lesson.start("99_test", "quick", 3)
    capsys.readouterr()
    yield begun
    _run._lesson = None


def verdict():
    return ledger.find(Answer)[-1].verdict


# ---- classes


class Stub:
    def __init__(self, start):
        self.count = start

    @logged
    def step(self, by):
        """Count on, and return the count."""
        # your code


class Begun(Stub):
    @logged
    def step(self, by):
        total = self.count + by
        ...  # your code


class Empty:
    pass


class Forgets(Stub):
    @logged
    def step(self, by):
        return self.count + by


class Another(Stub):
    def reset(self):
        pass

    def step(self, by):
        self.count = by + self.count
        return self.count


class Idle(Forgets):
    def reset(self):
        pass

    def step(self, by):
        return 0


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (Stub, "unsolved"),
        (Begun, "unsolved"),
        (Empty, "unsolved"),
        (Forgets, "wrong"),
        (Idle, "wrong"),
        (Another, "passed"),
    ],
)
def test_a_class_is_judged_by_what_it_does_and_one_with_a_stub_in_a_decorated_method_is_not_written(
    answer, expected
):
    used = lesson.exercise("counter").check(answer)
    assert verdict() == expected
    assert used is (answer if expected == "passed" else Counter)


def test_the_method_that_is_not_written_is_named(capsys):
    lesson.exercise("counter").check(Stub)
    assert "Your code is still missing in `step`" in capsys.readouterr().out


def test_an_answer_that_passes_may_keep_its_dots():
    def double(x):
        ...
        return 2 * x

    assert unwritten(double) == "`double`"
    verdict, _ = lesson._exercise.verdict_on(
        lambda: double, lambda answer: expect_close(answer(2), 4, "twice 2")
    )
    assert verdict == "passed"


# ---- scripts


def test_a_script_is_run_and_its_path_is_handed_back(tmp_path):
    mine = tmp_path / "mine_adder.py"
    mine.write_text("import sys\nt = 0\nfor word in sys.argv[1:]:\n    t += int(word)\nprint(t)\n")
    assert lesson.exercise("adder").check(mine) == mine
    assert verdict() == "passed"


@pytest.mark.parametrize(
    ("text", "expected", "words"),
    [
        ("import sys\n...  # your code\n", "unsolved", "Nothing here yet"),
        ("print(8)", "wrong", "expected 9"),
        ("print(9", "wrong", "SyntaxError"),
        ("raise SystemExit(3)", "wrong", "ended with status 3"),
        ("import time\ntime.sleep(60)", "wrong", "had not finished after 0.5 seconds"),
    ],
)
def test_a_script_that_does_not_pass_lends_the_reference_as_a_file_beside_it(
    tmp_path, capsys, monkeypatch, text, expected, words
):
    if "sleep" in text:
        monkeypatch.setitem(TASKS, "adder", _in_half_a_second())
    mine = tmp_path / "adder.py"
    mine.write_text(text)
    lent = lesson.exercise("adder").check(str(mine))
    assert verdict() == expected
    assert words in capsys.readouterr().out
    assert lent.parent == tmp_path
    assert Script(lent.read_text()).run("1", "1").strip() == "2"


def _in_half_a_second():
    return Exercise(
        id="adder", task="", reference=ADDER, verify=lambda script: script.run(seconds=0.5), **ABOUT
    )


def test_a_script_that_was_not_written_to_its_file_is_unsolved(tmp_path):
    lesson.exercise("adder").check(tmp_path / "nowhere.py")
    assert verdict() == "unsolved"


def test_what_a_script_began_ends_with_it():
    sleeping = (
        "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(99)'], "
        "stdout=-3, stderr=-3)"
    )
    child = int(Script(f"import subprocess, sys\nprint({sleeping}.pid)").run())
    deadline = time.monotonic() + 30  # a signal arrives when the system gets to it
    while _runs(child) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not _runs(child)


def _runs(process):
    import psutil

    return psutil.pid_exists(process) and psutil.Process(process).status() != psutil.STATUS_ZOMBIE


def test_a_script_runs_under_a_launcher():
    assert "usage: module" in Script("print('module')").run(
        "--help", launcher=("-c", "print('usage: module')")
    )


# ---- open tasks


def test_an_open_task_checks_its_contract_and_says_who_judges(capsys):
    task = lesson.exercise("speed")
    task.check(lambda step: 0.5)
    text = capsys.readouterr().out
    assert verdict() == "passed"
    assert "There is no right answer: judge yours by the ladder below." in text
    assert task.check(lambda step: 2.0) is speed
    assert verdict() == "wrong"


# ---- what a reader sees


def test_an_exercise_shows_difficulty_importance_and_minutes_and_its_hint_on_request(capsys):
    task = lesson.exercise("counter")
    task.show()
    text = capsys.readouterr().out
    assert "Exercise counter · ●●○ · importance 3 of 3 · 7 min" in text
    assert "Think of" not in text
    task.hint()
    assert "Think of sum." in capsys.readouterr().out


def test_what_passed_is_said_to_be_used(capsys):
    lesson.exercise("counter").check(Another)
    assert "your code is used from here on" in capsys.readouterr().out


# ---- in a notebook: asked, filled, graded


CLASS_CELL = (
    'class Counter:\n    ...  # your code\n\n\nCounter = exercise("counter").check(Counter)'
)
NAMED_CELL = (
    'task = exercise("counter")\n\n\nclass Counter:\n    ...  # your code\n\n\nCounter = '
    "task.check(Counter)"
)
SCRIPT_CELL = '%%writefile "{lab.folder}/adder.py"\n# exercise: adder\nimport sys\n...  # your code'
CHECK_CELL = 'adder = exercise("adder").check(lab.folder / "adder.py")'


def test_a_cell_asks_for_what_it_has_checked_directly_or_by_a_name():
    assert exercises.ids_in(CLASS_CELL) == exercises.ids_in(NAMED_CELL) == ["counter"]
    assert exercises.ids_in('task = exercise("counter")\ntask.show()') == []
    assert exercises.ids_in('exercise("counter").hint()') == []
    assert exercises.ids_in(SCRIPT_CELL) == []
    assert exercises.ids_in(CHECK_CELL) == ["adder"]
    assert exercises.script_in(SCRIPT_CELL) == "adder"
    assert exercises.script_in(CLASS_CELL) is None


@pytest.mark.parametrize("cell", [CLASS_CELL, NAMED_CELL])
def test_a_class_is_filled_in_and_passes(cell):
    filled = exercises.fill(cell)
    space = {"exercise": lesson.exercise, "logged": logged}
    # The reference stands in this file: its cell needs a source to be looked up, which exec has
    # not.
    exec(filled, space)
    assert "your code" not in filled
    assert verdict() == "passed"


def test_a_script_is_filled_in_below_the_line_that_names_its_exercise():
    first, second, rest = exercises.fill(SCRIPT_CELL).split("\n", 2)
    assert (first, second) == tuple(SCRIPT_CELL.split("\n")[:2])
    assert rest == str(ADDER)
    assert exercises.fill(CHECK_CELL) == CHECK_CELL, "the cell that checks it runs as it is"


@pytest.mark.parametrize(
    ("cells", "exercise_id", "solved", "expected"),
    [
        ([CLASS_CELL], "counter", False, "unsolved"),
        ([NAMED_CELL], "counter", False, "unsolved"),
        ([SCRIPT_CELL, CHECK_CELL], "adder", False, "unsolved"),
        ([SCRIPT_CELL, CHECK_CELL], "adder", True, "passed"),
        ([SCRIPT_CELL.replace("...", "print(8)"), CHECK_CELL], "adder", False, "wrong"),
        ([CHECK_CELL], "adder", False, "unsolved"),
    ],
)
def test_the_grader_knows_the_kinds(tmp_path, monkeypatch, cells, exercise_id, solved, expected):
    # the grader puts its own in this place
    monkeypatch.setattr(lesson, "exercise", lesson.exercise)
    path = tmp_path / "handed_in.ipynb"
    monkeypatch.setattr(exercises, "of", lambda lesson_name: tuple(TASKS.values()))
    nbformat.write(new_notebook(cells=[new_code_cell(source) for source in cells]), path)
    found = grading.exercise_cells(path, solved=solved)
    assert list(found) == [exercise_id]
    assert _grader.grade("a lesson", exercise_id, *found[exercise_id])[0] == expected


# ---- the student edition


def test_a_student_edition_stops_at_a_script_that_is_not_written_and_takes_one_that_is(
    tmp_path, monkeypatch
):
    bare = dataclasses.replace(
        TASKS["adder"], reference=None, verify=exercises.checked_when_handed_in
    )
    monkeypatch.setattr(exercises, "find", lambda exercise_id: bare)
    with pytest.raises(LessonError, match="Hint"):
        lesson.exercise("adder").check(tmp_path / "adder.py")
    (tmp_path / "adder.py").write_text("print(7)")
    assert lesson.exercise("adder").check(tmp_path / "adder.py") == tmp_path / "adder.py"


# ---- tolerances


def test_a_number_that_should_be_zero_may_be_a_rounding_away_from_it():
    expect_close(1e-14, 0.0, "a sum")
    expect_close(0.1 + 0.2 - 0.3, 0.0, "a sum")
    with pytest.raises(Wrong):
        expect_close(1e-9, 0.0, "a sum")
    with pytest.raises(Wrong):
        expect_close(1.00001, 1.0, "a ratio")


def test_a_card_of_a_task_is_escaped():
    task = Exercise(id="x", task="1 < 2", reference=1, verify=print, **ABOUT)
    assert "1 &lt; 2" in cards.card("task", task)
