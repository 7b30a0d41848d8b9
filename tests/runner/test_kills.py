"""Batches that are killed, stopped and started twice; and proof that the drills notice what they
are to notice.
"""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from benchmarks import drills
from labkit import files, ledger
from labkit.errors import LabError
from labkit.ledger.rows import Attempt, Batch, Memory
from labkit.runner import run_batch

pytestmark = pytest.mark.kills

STAY = "import time\ntime.sleep(600)"


def test_kills_at_random_moments_lose_nothing_tear_nothing_and_leave_nobody(tmp_path):
    count = drills.KillDrill(tmp_path / "drill", random.Random(3), notebooks=2).run(4, within_s=3)
    broken = {name: count[name] for name in ("torn", "lost", "rerun", "alive")}
    assert broken == {"torn": 0, "lost": 0, "rerun": 0, "alive": 0}
    assert count["resumed"] == count["kills"] >= 4
    assert not list((tmp_path / "drill" / "artifacts").rglob(".work-*"))


@pytest.fixture
def staying(tmp_path, monkeypatch):
    """(a batch whose notebook stays, its runtime folder), with the artifacts of the batch for
    this process too.
    """
    (tmp_path / "artifacts").mkdir()
    drills.write_workbook(tmp_path, {"00_stay": [drills.WORK, STAY, drills.RECORD]})
    batch = drills.start_batch(tmp_path)
    drills.wait_for(lambda: drills.lines(tmp_path, "started.txt"))
    for name in ("LABKIT_ROOT", "LABKIT_ARTIFACTS"):
        monkeypatch.setenv(name, drills.environment(tmp_path)[name])
    [runtime] = drills.lines(tmp_path, "runtime.txt")
    assert list(Path(runtime).glob("*.json")), "there is no connection file to be removed"
    yield batch, Path(runtime)
    batch.kill()
    batch.wait()


ENDS = {  # signal to the whole group: (exit code, what is left of the attempt)
    signal.SIGTERM: (143, "interrupted"),
    signal.SIGINT: (-signal.SIGINT, "interrupted"),
    signal.SIGKILL: (-signal.SIGKILL, "running"),
}


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
@pytest.mark.parametrize("number", ENDS)
def test_a_batch_told_to_stop_or_killed_takes_its_kernels_along_and_a_second_one_is_refused(
    tmp_path, staying, number
):
    batch, runtime = staying
    with pytest.raises(LabError, match="Another batch of notebooks is running"):
        run_batch(show=False)

    os.killpg(batch.pid, number)
    code, status = ENDS[number]
    assert batch.wait(timeout=400) == code
    assert drills.alive_after(tmp_path, seconds=20) == 0
    assert not runtime.exists(), "a connection file holds the key of its kernel"
    assert not list((tmp_path / "artifacts").rglob(".work-*"))
    assert [row.status for row in ledger.find(Attempt)] == [status]
    assert ledger.find(Batch)[0].status is None


def test_the_search_for_processes_finds_children_of_children_and_no_others():
    nested = (
        "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import time; "
        "time.sleep(600)'], env={})"
    )
    marked = subprocess.Popen([sys.executable, "-c", nested], env={**os.environ, "DRILL": "mine"})
    other = subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(600)"], env={"DRILL": "not mine"}
    )
    try:
        drills.wait_for(lambda: len(drills.marked("DRILL", "mine")) >= 2)
        assert other.pid not in [process.pid for process in drills.marked("DRILL", "mine")]
    finally:
        for process in (*psutil.Process(marked.pid).children(), marked, other):
            process.kill()
            process.wait()


# ---- each drill notices a broken runner: a check that cannot fail would prove nothing

ATOMIC = "files.write_text(path, text)"
IN_PLACE = "path.write_text(text, encoding='utf-8')"
REWRITE = """
import json, pathlib, sys
from labkit import files
path = pathlib.Path(sys.argv[1])
text = json.dumps({"cells": ["x" * 100] * 50000})
while True:
    WRITE
"""


@pytest.mark.parametrize("write, torn", [(ATOMIC, False), (IN_PLACE, True)])
def test_the_kill_check_finds_torn_files_of_a_writer_in_place_and_none_of_an_atomic_one(
    tmp_path, write, torn
):
    target = tmp_path / "artifacts" / "executed" / "quick" / "00_drill.ipynb"
    rng, found = random.Random(1), 0
    for _ in range(8):
        files.write_text(target, '{"cells": ["first"]}')
        process = subprocess.Popen(
            [sys.executable, "-c", REWRITE.replace("WRITE", write), str(target)]
        )
        drills.wait_for(lambda: target.stat().st_size > len('{"cells": ["first"]}'))
        time.sleep(rng.uniform(0, 0.25))
        process.kill()
        process.wait()
        found += bool(drills.torn_files(tmp_path))
    assert (found > 0) == torn


def test_the_kill_check_finds_a_row_that_was_called_safe_too_early(tmp_path):
    (tmp_path / "artifacts").mkdir()
    (tmp_path / "acknowledged.txt").write_text("b/00_drill/1 step-0\nb/00_drill/1 step-1\n")
    ledger.add(
        Memory(run_key="b/00_drill/1", name="step-0", device="cpu", threads=1),
        path=drills.ledger_of(tmp_path),
    )
    assert drills.lost_rows(tmp_path) == ["b/00_drill/1 step-1"]


def test_the_kill_check_finds_a_finished_notebook_that_ran_again():
    before = {"00_a": "b/00_a/1", "01_b": "b/01_b/2", "02_c": "b/02_c/1"}
    started = {"b/00_a/1", "b/01_b/1", "b/01_b/2", "b/02_c/1", "b/02_c/2"}
    assert drills.reran(before, before, started=started) == ["02_c"]
    assert drills.reran(before, {**before, "00_a": "b/00_a/2"}, started=started) == ["00_a", "02_c"]


def test_the_kill_check_finds_a_process_that_stayed(tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(600)"], env=drills.environment(tmp_path)
    )
    try:
        assert drills.alive_after(tmp_path, seconds=0.5) == 1
    finally:
        process.kill()
        process.wait()
    assert drills.alive_after(tmp_path) == 0
