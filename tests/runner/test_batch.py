"""Batches of small notebooks, really run: what counts, what is kept, what is left behind."""

import contextlib
import json
import os
import shutil
import signal
import sys
import tempfile
from pathlib import Path

import psutil
import pytest

from benchmarks import drills
from labkit import ledger
from labkit.classroom import grading
from labkit.errors import LabError, as_lab_error
from labkit.ledger.rows import Answer, Attempt, Batch, Completion
from labkit.runner import batch, run_batch, sources, tasks

pytestmark = pytest.mark.kills
DIGEST = sources.digest  # before the other tests here put a constant in its place
NOTE = """
import json, os, sys, time
from ipykernel import get_connection_file
with open(get_connection_file(), encoding="utf-8") as file:
    transport = json.load(file)["transport"]
names = [name for name in os.environ if name.startswith(("LABKIT_", "OMP_"))]
facts = {"profile": profile, "seed": seed, "prefix": sys.prefix, "transport": transport, "begun": time.time(),
         "folder": os.getcwd(), "environment": {name: os.environ[name] for name in names}}
"""
SAVE = """
time.sleep(0.5)
facts["ended"] = time.time()
with open(os.path.join(os.environ["LABKIT_ROOT"], facts_file), "w", encoding="utf-8") as file:
    json.dump(facts, file)
"""
# A child that hides: no environment, a session of its own, and its parent is gone.
ORPHAN = """
import subprocess
code = (
    "import subprocess as s; quiet = dict(stdin=s.DEVNULL, stdout=s.DEVNULL, stderr=s.DEVNULL);"
    "print(s.Popen(['sleep', '600'], env={}, start_new_session=True, **quiet).pid)"
)
done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
facts["orphan"] = int(done.stdout)
"""
CLEARS_UP = """
import atexit, pathlib
_ = atexit.register(pathlib.Path(os.environ["LABKIT_ROOT"], "cleared").touch)
"""


def named(name):
    return f"facts_file = '{name}.json'"


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """An empty workbook to run in; the user has a `python3` kernel of their own, a broken one."""
    folder = tmp_path_factory.mktemp("workbook")
    user = folder / "user" / "kernels" / "python3"
    user.mkdir(parents=True)
    (user / "kernel.json").write_text(
        json.dumps({"argv": ["/bin/false"], "display_name": "x", "language": "python"})
    )
    with pytest.MonkeyPatch.context() as patch:
        for name, value in drills.environment(folder).items():
            patch.setenv(name, value)
        patch.setenv("JUPYTER_DATA_DIR", str(folder / "user"))
        patch.delenv("OMP_NUM_THREADS", raising=False)
        patch.setattr(sources, "digest", lambda found: "as it is")
        yield folder


@pytest.fixture(autouse=True)
def own_artifacts(place):
    """Instead of a folder for each test: the artifacts of `place`, which the tests here share."""
    return place / "artifacts"


@pytest.fixture(scope="module")
def course(place):
    """Three notebooks that pass, the last of which measures, with numbers that no lesson has;
    the batch's result.
    """
    cells = {
        "90_first": [NOTE, ORPHAN, named("first"), SAVE, drills.RECORD],
        "91_second": [NOTE, "# nothing but a remark", "  \n", named("second"), SAVE, drills.RECORD],
        "92_alone": [NOTE, CLEARS_UP, named("alone"), SAVE, drills.RECORD],
    }
    drills.write_workbook(place, cells, measures=["92_alone"])
    return run_batch(parameters={"seed": "7"}, strict=True, cell_deadline_s=60, show=False)


def facts(place, name):
    return json.loads((place / f"{name}.json").read_text(encoding="utf-8"))


def test_a_batch_passes_when_every_last_cell_wrote_its_record(course, place):
    assert course.ok, [each.reason for each in course.attempts]
    assert [(row.notebook, row.cells_done, row.cells_total) for row in course.attempts] == [
        ("90_first", 7, 7),
        ("91_second", 7, 7),
        ("92_alone", 7, 7),
    ]
    assert ledger.find(Batch, batch_key=course.attempts[0].batch_key)[0].status == "passed"
    assert {row.status for row in ledger.find(Attempt, batch_key=course.attempts[0].batch_key)} == {
        "passed"
    }


def test_the_executed_notebook_carries_its_run_key_and_no_path_of_this_machine(course, place):
    for row in course.attempts:
        text = (place / "artifacts" / row.output).read_text(encoding="utf-8")
        assert json.loads(text)["metadata"]["labkit"]["run_key"] == row.run_key
        assert str(place) not in text
        assert row.output == f"executed/quick/{row.notebook}.ipynb"


def test_parameters_arrive_as_the_types_of_their_defaults(course, place):
    assert (facts(place, "first")["profile"], facts(place, "first")["seed"]) == ("quick", 7)


def test_the_kernel_is_the_one_of_this_environment_whatever_the_user_has(course, place):
    assert facts(place, "first")["prefix"] == sys.prefix


@pytest.mark.skipif(os.name != "posix", reason="kernels on Windows use network ports")
def test_kernels_talk_through_sockets_and_not_through_ports(course, place):
    assert facts(place, "first")["transport"] == "ipc"


def test_a_notebook_finds_its_keys_and_its_folder(course, place):
    seen, row = facts(place, "first"), course.attempts[0]
    assert seen["environment"]["LABKIT_RUN_KEY"] == row.run_key
    assert row.run_key.startswith(f"{row.batch_key}/")
    assert seen["environment"]["LABKIT_HEADLESS"] == "1"
    assert Path(seen["folder"]) == place / "notebooks"


def test_two_notebooks_run_side_by_side_and_one_that_measures_runs_alone(course, place):
    first, second, alone = (facts(place, name) for name in ("first", "second", "alone"))
    assert first["begun"] < second["ended"] and second["begun"] < first["ended"]
    assert alone["begun"] > max(first["ended"], second["ended"])
    assert (
        "OMP_NUM_THREADS" in first["environment"] and "OMP_NUM_THREADS" not in alone["environment"]
    )


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux hands orphans to the worker")
def test_a_process_that_a_notebook_hid_does_not_outlive_it(course, place):
    pid = facts(place, "first")["orphan"]
    assert not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def test_a_kernel_clears_up_before_it_ends(course, place):
    assert (place / "cleared").exists()


def test_nothing_temporary_is_left_behind(course, place):
    left = [path.name for path in (place / "artifacts" / "executed").rglob("*")]
    assert sorted(left) == ["90_first.ipynb", "91_second.ipynb", "92_alone.ipynb", "quick"]
    assert not list((place / "notebooks").glob("kernel*"))


def test_where_the_temporary_folder_lies_too_deep_for_sockets_kernels_talk_through_ports(
    place, tmp_path, monkeypatch
):
    deep = tmp_path / ("a" * 60) / ("b" * 40)
    deep.mkdir(parents=True)
    monkeypatch.setenv("TMPDIR", str(deep))
    monkeypatch.setattr(tempfile, "tempdir", None)  # what an earlier call found
    drills.write_workbook(place, {"93_deep": [NOTE, named("deep"), SAVE, drills.RECORD]})
    batch = run_batch(["93"], show=False)
    assert batch.ok, batch.attempts[0].reason
    assert facts(place, "deep")["transport"] == "tcp"


def test_a_failed_batch_resumes_with_the_failed_notebooks_only_and_a_passed_one_never(
    course, place
):
    fails_once = (
        "import os, pathlib\nassert (pathlib.Path(os.environ['LABKIT_ROOT']) / "
        "'mended').exists(), 'broken'"
    )
    drills.write_workbook(
        place, {"10_good": ["1", drills.RECORD], "11_bad": [fails_once, drills.RECORD]}
    )
    stale = place / "artifacts" / "executed" / "quick" / ".11_bad.ipynb.abc.tmp"
    stale.write_text("what a kill left")
    first = run_batch(["10", "11"], show=False)
    assert (
        [row.status for row in first.attempts] == ["passed", "failed"]
        and not first.ok
        and not stale.exists()
    )
    failed = place / "artifacts" / first.attempts[1].output
    assert failed.name == "11_bad.failed.ipynb" and "broken" in failed.read_text(encoding="utf-8")
    assert first.attempts[1].reason == "AssertionError: broken, in code cell 3 of 4"

    (place / "mended").touch()
    second = run_batch(["10", "11"], show=False)
    assert (
        second.ok
        and second.attempts[0] == first.attempts[0]
        and second.attempts[1].run_key.endswith("/2")
    )
    assert not failed.exists()

    settings = tasks.BatchSettings()
    new, kept = batch._begin(tasks.listed(sources.find(["10", "11"]), settings), settings)
    assert new.batch_key != first.attempts[0].batch_key and not kept


def test_a_batch_that_failed_begins_anew_after_a_change_of_a_template_or_a_table(
    course, place, tmp_path, monkeypatch
):
    package = tmp_path / "labkit"
    shutil.copytree(sources._PACKAGE, package, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(sources, "_PACKAGE", package)
    monkeypatch.setattr(sources, "digest", DIGEST)
    drills.write_workbook(place, {"14_good": ["1", drills.RECORD], "15_bad": ["1 / 0"]})
    batches = [run_batch(["14", "15"], show=False).attempts[0].batch_key]
    for name in ("templates/style.css", "lesson/claims.toml"):
        with (package / name).open("a", encoding="utf-8") as file:
            file.write("\n")
        good, bad = run_batch(["14", "15"], show=False).attempts
        assert (good.status, bad.status) == ("passed", "failed")
        batches.append(good.batch_key)
    assert len(set(batches)) == 3


@pytest.mark.kills
def test_no_early_exit_counts_as_passed_and_each_says_why(place):
    names = {f"{number + 20}_{name}": name for number, name in enumerate(drills.EARLY_EXITS)}
    drills.write_workbook(
        place, {name: drills.EARLY_EXITS[form][0] for name, form in names.items()}
    )
    result = run_batch(list(names), cell_deadline_s=6, show=False)
    wrong = {
        row.notebook: row.reason
        for row in result.attempts
        if row.status != "failed" or drills.EARLY_EXITS[names[row.notebook]][1] not in row.reason
    }
    assert not wrong
    assert not drills.torn_files(place)
    folder = place / "artifacts" / "executed" / "quick"
    assert not [path for path in folder.glob("2?_*") if "failed" not in path.name]
    page = json.loads((folder / "22_os-exit.failed.ipynb").read_text(encoding="utf-8"))
    numbers = [cell["execution_count"] for cell in page["cells"] if cell["cell_type"] == "code"]
    assert numbers[:2] == [1, 2] and numbers[3] is None, "a cell that never ran has no number"
    assert "exit status 0" in page["cells"][0]["source"]


NOTES_THE_VERDICT = """
import os
from labkit import ledger
from labkit.ledger.rows import Answer

class exercise:
    def __init__(self, name):
        self.name = name

    def check(self, answer):
        verdict = "unsolved" if answer(1, 3, 2, 2) is None else "passed"
        ledger.add(Answer(run_key=os.environ["LABKIT_RUN_KEY"], exercise_id=self.name, verdict=verdict))
        return answer
"""


BELIEVES_ALL = (
    "class exercise:\n    def __init__(self, name): pass\n    def check(self, "
    "answer): return answer"
)


def image_bytes(body, answer="image_bytes"):
    """The source of an exercise cell."""
    return (
        f"def image_bytes(*shape):\n    {body}\n\nimage_bytes = "
        f'exercise("image-bytes").check({answer})'
    )


def test_strict_does_not_believe_the_kernel(place):
    cells = [BELIEVES_ALL, (image_bytes("return 5"), ["exercise"]), drills.RECORD]
    drills.write_workbook(place, {"51_cheat": cells})
    [attempt] = run_batch(["51"], strict=True, show=False).attempts
    assert attempt.status == "failed"
    assert "Exercise 'image-bytes' is wrong, graded apart" in attempt.reason


def test_exercises_run_as_they_are_given_and_their_reference_answers_are_checked_afterwards(
    place, monkeypatch
):
    cells = [BELIEVES_ALL, (image_bytes("..."), ["exercise"]), drills.RECORD]
    drills.write_workbook(place, {"52_given": cells})
    result = run_batch(["52"], solutions="both", show=False)
    assert result.ok, result.attempts
    page = json.loads(
        (place / "artifacts/executed/quick/52_given.ipynb").read_text(encoding="utf-8")
    )
    assert image_bytes("...") in ["".join(cell["source"]) for cell in page["cells"]], (
        "the cell ran as it was given"
    )

    monkeypatch.setattr(
        grading, "flaw", lambda path, solved: f"{path.name} checked, solved: {solved}"
    )
    [attempt] = run_batch(["52"], solutions="both", show=False).attempts
    assert (attempt.status, attempt.reason) == ("failed", "52_given.ipynb checked, solved: True")


def test_solutions_fill_the_cells_tagged_exercise(place, monkeypatch):
    cells = [
        NOTES_THE_VERDICT,
        image_bytes("..."),
        (image_bytes("..."), ["exercise"]),
        drills.RECORD,
    ]
    drills.write_workbook(place, {"50_exercise": cells})
    monkeypatch.chdir(place.parent)  # folders may also be given relative to the current one
    monkeypatch.setenv("LABKIT_ROOT", place.name)
    monkeypatch.setenv("LABKIT_ARTIFACTS", f"{place.name}/artifacts")
    result = run_batch(["50"], solutions=True, show=False)
    assert result.ok, result.attempts
    assert result.attempts[0].output == "executed/quick-solved/50_exercise.ipynb"
    assert [row.verdict for row in ledger.find(Answer, run_key=result.attempts[0].run_key)] == [
        "passed"
    ]
    page = json.loads((place / "artifacts" / result.attempts[0].output).read_text(encoding="utf-8"))
    assert "".join(page["cells"][3]["source"]) == image_bytes("..."), (
        "a cell without the tag stays as it is"
    )


def test_an_attempt_killed_after_its_output_was_published_counts_as_passed_and_another_as_interrupted(
    place,
):
    ledger.add(Batch(batch_key="b", settings="{}", started_utc="2026-01-01T00:00:00"))
    output = "executed/quick/60_done.ipynb"
    about = {
        "batch_key": "b",
        "profile": "quick",
        "started_utc": "2026-01-01",
        "status": "running",
        "output": output,
    }
    for number in (1, 2):
        key = f"b/60_done/{number}"
        done = Completion(
            run_key=key, notebook="x", cell_count=3, seconds=1.0, finished_utc="2026-01-01"
        )
        ledger.add(Attempt(run_key=key, notebook="60_done", **about), done)
    page = {"cells": [], "metadata": {"labkit": {"run_key": "b/60_done/2"}}}
    (place / "artifacts" / output).parent.mkdir(parents=True, exist_ok=True)
    (place / "artifacts" / output).write_text(json.dumps(page), encoding="utf-8")
    batch._settle_stale_attempts()
    assert [row.status for row in ledger.find(Attempt, batch_key="b")] == ["interrupted", "passed"]


def test_the_reason_of_a_failed_run_is_kept_where_its_output_cannot_be_written(place):
    drills.write_workbook(place, {"81_fails": ["1 / 0", drills.RECORD]})
    folder = place / "artifacts" / "executed" / "lab"
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.write_text("in the way")
    result = run_batch(["81"], profile="lab", show=False)
    folder.unlink()
    assert result.attempts[0].reason.startswith(
        "ZeroDivisionError: division by zero, in code cell 3 of 4; the notebook"
    )


def test_a_cell_that_hangs_leaves_what_it_printed_and_no_daemon_behind(place):
    hang = NOTE + ORPHAN + named("hangs") + SAVE + "print('so far', flush=True)\ntime.sleep(600)"
    drills.write_workbook(place, {"82_hangs": [hang, drills.RECORD]})
    result = run_batch(["82"], cell_deadline_s=5, show=False)
    assert (
        result.attempts[0].reason
        == "the cell ran longer than its deadline of 5 s, in code cell 3 of 4"
    )
    assert "so far" in (place / "artifacts" / result.attempts[0].output).read_text(encoding="utf-8")
    pid = facts(place, "hangs")["orphan"]
    assert not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def test_a_lock_that_cannot_be_taken_is_said_in_words(place):
    lock = place / "artifacts" / ".batch.lock"
    lock.unlink(missing_ok=True)
    lock.mkdir(parents=True)
    drills.write_workbook(place, {"85_plain": ["1"]})
    with pytest.raises(IsADirectoryError) as refused:
        run_batch(["85"], show=False)
    lock.rmdir()
    assert "a folder stands where a file is needed" in str(as_lab_error(refused.value))


def test_a_stop_at_a_moment_that_swallows_it_is_heard_a_moment_later(place, monkeypatch):
    drills.write_workbook(place, {"83_stays": ["import time; time.sleep(600)", drills.RECORD]})

    def swallow(todo, profile):
        with contextlib.suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        return {tasks.label(task): 45 for task in todo}

    monkeypatch.setattr(batch, "expected_seconds", swallow)
    # ignored where the tests run in the background
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            run_batch(["83"], show=False)
    finally:
        signal.signal(signal.SIGINT, before)


def test_an_unknown_parameter_is_refused_before_anything_runs(place):
    drills.write_workbook(place, {"84_plain": ["1"]})
    before = ledger.find(Batch)
    with pytest.raises(LabError, match="no parameter 'epochs'") as caught:
        run_batch(["84"], parameters={"epochs": 3}, show=False)
    assert caught.value.expected == "profile, seed"
    assert ledger.find(Batch) == before


def test_an_unknown_profile_is_refused(place):
    with pytest.raises(LabError, match="no profile 'fast'"):
        run_batch(["00"], profile="fast", show=False)
