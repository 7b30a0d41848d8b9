"""Runs on a cluster: the same results as here, whatever is killed, hangs, is full or of another version."""

import contextlib
import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
from dataclasses import asdict, replace

import psutil
import pytest

from benchmarks import cluster_drills, drills
from labkit import ledger
from labkit.errors import LabError
from labkit.ledger.rows import Attempt, Batch, Ceiling, Claim, Completion
from labkit.runner import cluster, keeper, outcome, parcels, remote, run_batch, sources

pytestmark = [pytest.mark.kills, pytest.mark.skipif(os.name != "posix", reason="workers need a system of POSIX")]

TIMES = """
import json, os, pathlib, time
begun = time.time()
time.sleep(0.6)
facts = {"begun": begun, "ended": time.time(), "seed": seed, "threads": os.environ.get("OMP_NUM_THREADS")}
(pathlib.Path(os.environ["LABKIT_ROOT"]) / f"{name}.json").write_text(json.dumps(facts))
"""
STAY = "import time\ntime.sleep(600)"


@pytest.fixture
def place(tmp_path, monkeypatch):
    """An empty workbook to run in."""
    (tmp_path / "artifacts").mkdir()
    for name, value in drills.environment(tmp_path).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


@contextlib.contextmanager
def threads(workers=1, nthreads=1, preload=remote.__name__):
    """A scheduler and workers as threads of this process, which start at once; yields the cluster."""
    from distributed import LocalCluster

    how = {
        "processes": False,
        "protocol": "tcp",
        "host": "127.0.0.1",
        "dashboard_address": "127.0.0.1:0",
        "preload": preload,
    }
    with LocalCluster(n_workers=workers, threads_per_worker=nthreads, silence_logs=50, **how) as made:
        yield made


def files_of(place):
    return sorted(path.relative_to(place / "artifacts").as_posix() for path in place.glob("artifacts/executed/**/*.*"))


def test_a_cluster_leaves_the_same_rows_and_files_as_a_run_here(place):
    drills.write_workbook(place, {"00_a": [drills.WORK, "assert seed == 3, 'another seed'", drills.RECORD]})
    here = run_batch(seeds=(3, 4), show=False)
    files = files_of(place)
    assert files == ["executed/quick-seed-3/00_a.ipynb", "executed/quick-seed-4/00_a.failed.ipynb"]
    with threads() as made:
        there = run_batch(seeds=(3, 4), cluster=made.scheduler_address, fresh=True, show=False)
    assert files_of(place) == files
    assert [(row.notebook, row.seed, row.status, row.reason, row.output) for row in there.attempts] == [
        (row.notebook, row.seed, row.status, row.reason, row.output) for row in here.attempts
    ]
    assert "another seed" in there.attempts[1].reason
    assert {row.host for row in there.attempts} == {os.uname().nodename}
    assert {row.host for row in here.attempts} == {None}
    for row in there.attempts:
        page = json.loads((place / "artifacts" / row.output).read_text(encoding="utf-8"))
        assert page["metadata"]["labkit"]["run_key"] == row.run_key
    keys = [row.run_key for row in (*here.attempts, *there.attempts)]
    assert sorted(row.run_key for row in ledger.find(Ceiling)) == sorted(keys * 10)
    assert sorted(row.run_key for row in ledger.find(Completion)) == sorted(keys[::2])
    assert not drills.lost_rows(place)
    assert not list(place.glob("labkit-*/")), "a worker's folder is left"


def test_what_passed_on_a_cluster_is_kept_by_a_run_here(place):
    fails_once = "import os, pathlib\nassert (pathlib.Path(os.environ['LABKIT_ROOT']) / 'mended').exists(), 'broken'"
    drills.write_workbook(place, {"00_good": [drills.RECORD], "01_bad": [fails_once, drills.RECORD]})
    with threads() as made:
        first = run_batch(cluster=made.scheduler_address, show=False)
        assert [row.status for row in first.attempts] == ["passed", "failed"]
        (place / "mended").touch()
    second = run_batch(show=False)
    assert second.ok and second.batch_key == first.batch_key and second.kept == ("00_good",)
    assert second.attempts[0] == first.attempts[0]


def test_a_lesson_that_measures_has_its_machine_alone_also_where_two_workers_are_there(place):
    names = {"00_light": False, "01_measures": True, "02_measures": True}
    cells = {name: [f"name = '{name}'\n" + TIMES, drills.RECORD] for name in names}
    drills.write_workbook(place, cells, measures=[name for name, measures in names.items() if measures])
    with threads(workers=2, nthreads=2) as made:
        assert run_batch(cluster=made.scheduler_address, show=False).ok
    seen = {name: json.loads((place / f"{name}.json").read_text()) for name in names}
    beside = [
        (one, other)
        for one in names
        for other in names
        if one < other and seen[one]["begun"] < seen[other]["ended"] and seen[other]["begun"] < seen[one]["ended"]
    ]
    assert beside == []
    assert seen["02_measures"]["threads"] != "1" or os.environ.get("OMP_NUM_THREADS") == "1"


def test_a_worker_of_another_version_and_one_without_the_course_are_left_out_with_the_reason(
    place, capsys, monkeypatch
):
    drills.write_workbook(place, {"00_a": [drills.RECORD]})
    with threads(preload=[]) as made:
        with pytest.raises(LabError, match="No worker of the cluster can be used") as caught:
            run_batch(cluster=made.scheduler_address, show=False)
        assert "--preload labkit.runner.remote" in caught.value.found
        assert "nthreads" in caught.value.fix

    course = sources.course
    monkeypatch.setattr(sources, "course", lambda: "another")
    with threads() as made:
        monkeypatch.setattr(sources, "course", course)
        with pytest.raises(LabError) as caught:
            run_batch(cluster=made.scheduler_address, show=False)
        assert f"another version (another, here {course()})" in caught.value.found
        made.scale(2)
        made.sync(made._correct_state)
        drills.wait_for(lambda: len(made.scheduler_info["workers"]) == 2)
        assert run_batch(cluster=made.scheduler_address).ok
    assert "is left out: it has the course in another version (another" in capsys.readouterr().out


def test_files_that_change_under_a_worker_take_it_out(place, monkeypatch):
    drills.write_workbook(place, {"00_a": [drills.RECORD]})
    monkeypatch.setattr(cluster, "ALL_REFUSED_S", 1)
    answers = iter(["before", "before"])  # to the worker as it starts, and to the client
    monkeypatch.setattr(sources, "course", lambda: next(answers, "after"))
    with threads() as made, pytest.raises(LabError, match="no worker left") as caught:
        run_batch(cluster=made.scheduler_address, show=False)
    assert "its files changed to another version (after) while it ran" in caught.value.found
    assert not ledger.find(Attempt)


def test_a_full_disk_takes_a_worker_out_and_another_one_does_the_task(place, capsys, monkeypatch):
    drills.write_workbook(place, {f"{n:02}_a": [drills.RECORD] for n in range(2)})
    with threads(workers=2) as made:
        full = made.workers[0].local_directory
        room = remote.shutil.disk_usage

        def usage(path):
            return room(path)._replace(free=10**6 if str(path).startswith(full) else 10**12)

        monkeypatch.setattr(remote.shutil, "disk_usage", usage)
        result = run_batch(cluster=made.scheduler_address)
    assert result.ok
    said = capsys.readouterr().out
    assert f"its disk has 1 MB left in {full}" in said
    assert "then start its `dask worker` again" in said


def test_a_disk_that_fills_up_while_a_notebook_runs_is_not_the_notebooks_failure(place, monkeypatch):
    drills.write_workbook(place, {"00_a": ["raise OSError(28, 'No space left on device')", drills.RECORD]})
    room, asked = remote.shutil.disk_usage, []

    def usage(path):
        asked.append(path)
        return room(path)._replace(free=10**12 if len(asked) == 1 else 10**6)

    monkeypatch.setattr(remote.shutil, "disk_usage", usage)
    monkeypatch.setattr(cluster, "ALL_REFUSED_S", 1)
    with threads() as made, pytest.raises(LabError, match="no worker left") as caught:
        run_batch(cluster=made.scheduler_address, show=False)
    assert "free some" in caught.value.found
    assert not ledger.find(Attempt)


def test_a_runner_that_hangs_on_a_worker_is_stopped_and_nothing_of_it_is_left(place, monkeypatch):
    hang = "import os, psutil\npsutil.Process(os.getppid()).parent().suspend()"
    drills.write_workbook(place, {"00_hangs": [hang, drills.RECORD]})
    monkeypatch.setattr(cluster, "GRACE_S", 15 - 900)
    with threads() as made:
        result = run_batch(cluster=made.scheduler_address, show=False)
    (attempt,) = result.attempts
    assert attempt.reason == "the runner did not end within 15 s and was stopped"
    assert attempt.seconds >= 15
    assert keeper.marked("LABKIT_BATCH_KEY", result.batch_key) == []


def test_a_notebook_that_kills_its_runner_fails_with_the_reason(place):
    kill = "import os, psutil\npsutil.Process(os.getppid()).parent().kill()\nimport time; time.sleep(60)"
    drills.write_workbook(place, {"00_kills": [kill, drills.RECORD]})
    with threads() as made:
        result = run_batch(cluster=made.scheduler_address, show=False)
    assert [row.reason for row in result.attempts] == ["the runner was killed by signal 9"]


def parcel_of(run_key="b/00_a/1"):
    """(the `Attempt` as it was sent, a parcel as a worker would make it)."""
    output = "executed/quick/00_a.ipynb"
    sent = Attempt(run_key=run_key, batch_key="b", notebook="00_a", profile="quick", started_utc="", status="running",
                   output=output)  # fmt: skip
    ended = replace(sent, status="passed", seconds=1.0, cells_done=2, cells_total=2)
    path = outcome.artifacts() / "there.sqlite"
    path.unlink(missing_ok=True)
    done = Completion(run_key=run_key, notebook="00_a", cell_count=2, seconds=1.0, finished_utc="")
    other = Claim(run_key="another run", claim_id="c", sentence="not its own", verdict="holds")
    ledger.add(
        done, replace(other, run_key=run_key), other, Batch(batch_key="x", settings="", started_utc=""), path=path
    )
    with contextlib.closing(sqlite3.connect(path)) as stored:
        stored.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    files = {"rows": path.read_bytes(), "notebook": b'{"cells": [1], "metadata": {"labkit": {"run_key": "k"}}}'}
    return sent, parcels.packed(asdict(ended), files)


def test_a_parcel_that_comes_twice_counts_once_and_only_rows_of_its_own_run_count(tmp_path):
    sent, parcel = parcel_of()
    for _ in range(2):
        assert parcels.store(sent, parcel, tmp_path).status == "passed"
    assert [row.run_key for row in ledger.find(Claim)] == ["b/00_a/1"]
    assert len(ledger.find(Completion)) == len(ledger.find(Attempt)) == 1
    assert ledger.find(Batch) == []


def test_a_damaged_parcel_is_a_failed_attempt_and_leaves_no_rows(tmp_path):
    sent, parcel = parcel_of()
    parcel["files"]["rows"] = parcel["files"]["rows"] + b"x"
    attempt = parcels.store(sent, parcel, tmp_path)
    assert (attempt.status, attempt.reason) == ("failed", "what came back is damaged: rows")
    assert ledger.find(Claim) == []


def test_a_parcel_without_a_completion_record_does_not_pass(tmp_path):
    sent, parcel = parcel_of()
    del parcel["files"]["rows"]
    attempt = parcels.store(sent, parcel, tmp_path)
    assert attempt.status == "failed"
    assert (outcome.artifacts() / "executed/quick/00_a.failed.ipynb").exists()


def test_an_address_where_nobody_answers_is_refused_with_the_command_that_starts_a_scheduler(place, monkeypatch):
    drills.write_workbook(place, {"00_a": [drills.RECORD]})
    monkeypatch.setattr(cluster, "CONNECT_S", 1)
    for address in (f"tcp://127.0.0.1:{cluster_drills.free_port()}", "nonsense", "http://127.0.0.1:1"):
        with pytest.raises(LabError, match="No scheduler answers there") as caught:
            run_batch(cluster=address, show=False)
        assert "dask scheduler --host 127.0.0.1" in caught.value.fix


def test_without_the_package_the_option_says_what_to_install(place, monkeypatch):
    drills.write_workbook(place, {"00_a": [drills.RECORD]})
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(LabError, match="needs the package `distributed`") as caught:
        run_batch(cluster="local", show=False)
    assert "pip install distributed" in caught.value.fix


def test_dask_is_imported_only_for_a_cluster():
    code = "import sys, labkit.cli, labkit.runner.batch; print({'distributed', 'dask'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


# ---- with processes of their own, some of which are killed


def test_a_local_cluster_listens_on_the_loopback_address_only_and_stops_with_its_batch(tmp_path):
    (tmp_path / "artifacts").mkdir()
    drills.write_workbook(tmp_path, {"00_stay": [drills.WORK, STAY, drills.RECORD]})
    batch = drills.start_batch(tmp_path, cluster="local")
    drills.wait_for(lambda: drills.lines(tmp_path, "started.txt"))
    heard = {
        connection.laddr.ip
        for process in keeper.marked("LABKIT_ROOT", str(tmp_path))
        for connection in process.net_connections("inet")
        if connection.status == psutil.CONN_LISTEN
    }
    os.kill(batch.pid, signal.SIGTERM)
    assert batch.wait(timeout=60) == 143
    assert heard == {"127.0.0.1"}
    assert drills.alive_after(tmp_path, 10) == 0


def test_what_was_sent_goes_on_without_its_client_and_is_found_again(tmp_path):
    (tmp_path / "artifacts").mkdir()
    slow = "import time\ntime.sleep(3)"
    drills.write_workbook(tmp_path, {"00_drill": [drills.WORK, slow, drills.RECORD]})
    with cluster_drills.cluster(tmp_path) as made:
        first = drills.start_batch(tmp_path, cluster=made.address)
        drills.wait_for(lambda: drills.lines(tmp_path, "started.txt"))
        first.kill()
        first.wait()
        drills.wait_for(lambda: len(drills.lines(tmp_path, "acknowledged.txt")) == cluster_drills.ROWS)
        assert drills.start_batch(tmp_path, cluster=made.address).wait(timeout=90) == 0
    assert len((tmp_path / "started.txt").read_text().splitlines()) == 1
    assert len(ledger.find(Ceiling, path=drills.ledger_of(tmp_path))) == cluster_drills.ROWS
    assert drills.alive_after(tmp_path, 10) == 0


def test_a_worker_that_hangs_loses_its_task_to_another_and_a_lost_scheduler_is_said_in_words(tmp_path):
    (tmp_path / "artifacts").mkdir()
    once = "import os, pathlib, time\nmark = pathlib.Path(os.environ['LABKIT_ROOT']) / 'once'\n"
    once += "if not mark.exists():\n    mark.touch()\n    time.sleep(600)"
    drills.write_workbook(tmp_path, {"00_drill": [drills.WORK, once, drills.RECORD]})
    with cluster_drills.cluster(tmp_path, DASK_DISTRIBUTED__SCHEDULER__WORKER_TTL="4s") as made:
        first = drills.start_batch(tmp_path, cluster=made.address)
        drills.wait_for((tmp_path / "once").exists)
        made.worker_process().suspend()
        made.start_worker("1")
        assert first.wait(timeout=90) == 0

        drills.write_workbook(tmp_path, {"00_drill": [drills.WORK, STAY, drills.RECORD]})
        for name in made.workers:
            made.workers[name].kill()
        made.start_worker("2")
        second = drills.start_batch(tmp_path, cluster=made.address)
        drills.wait_for(lambda: len((tmp_path / "started.txt").read_text().splitlines()) == 3)
        made.scheduler.kill()
        assert second.wait(timeout=90) == 1
        said = (tmp_path / "batch.log").read_text(encoding="utf-8")
        assert "The scheduler went away." in said
        assert "the same command then goes on" in said
        drills.wait_for(lambda: drills.alive_after(tmp_path, 0) <= 1)
    assert drills.alive_after(tmp_path, 10) == 0


def test_kills_at_random_moments_lose_nothing_double_nothing_and_leave_nobody(tmp_path):
    drill = cluster_drills.KillDrill(tmp_path / "drill", random.Random(4), notebooks=1, seeds=2)
    count = drill.run(3, within_s=3)
    assert count.pop("kills") >= 3
    assert drill.runs >= 1
    assert count == {"lost": 0, "doubled": 0, "rerun": 0, "torn": 0}
    assert drills.alive_after(tmp_path / "drill", 10) == 0


# ---- the drill notices what is broken


def test_the_drill_finds_rows_that_count_twice_rows_that_are_lost_and_finished_tasks_that_ran_again(tmp_path):
    drill = cluster_drills.KillDrill(tmp_path / "drill", notebooks=1, seeds=1)
    path, key = drills.ledger_of(drill.folder), "b/00_drill-seed-0/1"
    ledger.add(Batch(batch_key="b", settings="", started_utc=""), path=path)
    about = {"batch_key": "b", "notebook": "00_drill", "seed": 0, "profile": "quick", "started_utc": ""}
    ledger.add(Attempt(run_key=key, **about, status="passed", output="executed/quick/x.ipynb"), path=path)
    steps = [Ceiling(run_key=key, name=f"step-{n}", device="cpu", threads=1) for n in range(9)]
    ledger.add(*steps, path=path)
    (drill.folder / "started.txt").write_text(f"{key}\n")
    drill.note_finished()
    assert drill.counts() == {"kills": 0, "lost": 1, "doubled": 0, "rerun": 0, "torn": 1}
    ledger.add(*(replace(row, run_key="b/00_drill-seed-0/7") for row in steps), path=path)
    (drill.folder / "started.txt").write_text(f"{key}\nb/00_drill-seed-0/2\n")
    assert drill.counts() == {"kills": 0, "lost": 1, "doubled": 9, "rerun": 1, "torn": 1}
