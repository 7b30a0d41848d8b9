"""Runs on a cluster: the same results as here, whatever is killed, hangs or is of another
version.
"""

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
from dataclasses import replace

import psutil
import pytest

from benchmarks import cluster_drills, drills
from labkit import ledger
from labkit.errors import LabError
from labkit.ledger.rows import Attempt, Batch, Completion, Memory, Run
from labkit.runner import cluster, run_batch, sources

pytestmark = [
    pytest.mark.kills,
    pytest.mark.skipif(os.name != "posix", reason="workers need a system of POSIX"),
]

TIMES = """
import json, os, pathlib, time
begun = time.time()
time.sleep(0.6)
facts = {"begun": begun, "ended": time.time(), "threads": os.environ.get("OMP_NUM_THREADS")}
(pathlib.Path(os.environ["LABKIT_ROOT"]) / f"{name}.json").write_text(json.dumps(facts))
"""
STAY = "import time\ntime.sleep(600)"


@pytest.fixture
def place(tmp_path, monkeypatch):
    """An empty workbook to run in."""
    (tmp_path / "artifacts").mkdir()
    for name, value in drills.environment(tmp_path).items():
        monkeypatch.setenv(name, value)
    return tmp_path


@contextlib.contextmanager
def threads(**changes):
    """A scheduler and a worker as threads of this process, which start at once; yields the
    scheduler's address.
    """
    from distributed import LocalCluster

    here = {
        "processes": False,
        "protocol": "tcp",
        "host": "127.0.0.1",
        "dashboard_address": "127.0.0.1:0",
    }
    worker = {"n_workers": 1, "threads_per_worker": 2, "resources": {cluster.MACHINE: 1}}
    with LocalCluster(silence_logs=50, **{**here, **worker, **changes}) as made:
        yield made.scheduler_address


def files_of(place):
    return sorted(
        path.relative_to(place / "artifacts").as_posix()
        for path in place.glob("artifacts/executed/**/*.*")
    )


def test_a_cluster_leaves_the_same_rows_and_files_as_a_run_here(place):
    drills.write_workbook(
        place, {"00_a": [drills.WORK, "assert seed == 3, 'another seed'", drills.RECORD]}
    )
    here = run_batch(seeds=(3, 4), show=False)
    files = files_of(place)
    assert files == ["executed/quick-seed-3/00_a.ipynb", "executed/quick-seed-4/00_a.failed.ipynb"]
    with threads() as address:
        there = run_batch(seeds=(3, 4), cluster=address, fresh=True, show=False)
    assert files_of(place) == files
    assert [
        (row.notebook, row.seed, row.status, row.reason, row.output) for row in there.attempts
    ] == [(row.notebook, row.seed, row.status, row.reason, row.output) for row in here.attempts]
    assert "another seed" in there.attempts[1].reason
    assert {row.host for row in there.attempts} == {os.uname().nodename}
    assert {row.host for row in here.attempts} == {None}
    for row in there.attempts:
        page = json.loads((place / "artifacts" / row.output).read_text(encoding="utf-8"))
        assert page["metadata"]["labkit"]["run_key"] == row.run_key
    keys = [row.run_key for row in (*here.attempts, *there.attempts)]
    assert sorted(row.run_key for row in ledger.find(Memory)) == sorted(keys * 10)
    assert sorted(row.run_key for row in ledger.find(Completion)) == sorted(keys[::2])
    assert {row.batch_key for row in ledger.find(Attempt)} == {
        each.attempts[0].batch_key for each in (here, there)
    }
    assert len(ledger.find(Batch)) == 2
    assert not drills.lost_rows(place)


def test_what_passed_on_a_cluster_is_kept_by_a_run_here(place):
    fails_once = (
        "import os, pathlib\nassert (pathlib.Path(os.environ['LABKIT_ROOT']) / "
        "'mended').exists(), 'broken'"
    )
    drills.write_workbook(
        place, {"00_good": [drills.RECORD], "01_bad": [fails_once, drills.RECORD]}
    )
    with threads() as address:
        first = run_batch(cluster=address, show=False)
    assert [row.status for row in first.attempts] == ["passed", "failed"]
    (place / "mended").touch()
    second = run_batch(show=False)
    assert second.ok and second.attempts[0] == first.attempts[0]


def test_a_lesson_that_measures_has_its_worker_alone_with_all_its_cores(place, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # as dask's nanny sets it
    names = {"00_light": False, "01_measures": True, "02_measures": True}
    cells = {name: [f"name = '{name}'\n" + TIMES, drills.RECORD] for name in names}
    drills.write_workbook(
        place, cells, measures=[name for name, measures in names.items() if measures]
    )
    with threads() as address:
        assert run_batch(cluster=address, show=False).ok
    seen = {name: json.loads((place / f"{name}.json").read_text()) for name in names}
    beside = [
        (one, other)
        for one in names
        for other in names
        if one < other
        and seen[one]["begun"] < seen[other]["ended"]
        and seen[other]["begun"] < seen[one]["ended"]
    ]
    assert beside == []
    assert seen["02_measures"]["threads"] is None


def test_a_worker_of_another_version_of_the_course_is_refused_in_words(place, monkeypatch):
    drills.write_workbook(place, {"00_a": [drills.RECORD]})
    here, answers = sources.course(), iter(["ours"])
    monkeypatch.setattr(sources, "course", lambda: next(answers, here))  # the worker asks last
    with (
        threads() as address,
        pytest.raises(LabError, match="another version of the course") as caught,
    ):
        run_batch(cluster=address, show=False)
    assert caught.value.expected == "ours" and here in caught.value.found
    assert "bring both to one commit" in caught.value.fix
    assert not ledger.find(Run) and {row.status for row in ledger.find(Attempt)} <= {"interrupted"}


def test_without_a_worker_that_can_take_a_lesson_the_run_ends_with_the_command_that_starts_one(
    place, monkeypatch
):
    drills.write_workbook(place, {"00_a": [drills.RECORD]})
    monkeypatch.setattr(cluster, "NO_WORKER_S", 1)
    for changes, found in (
        ({"resources": {}}, "1 without --resources labkit=1"),
        ({"n_workers": 0}, "none"),
    ):
        with (
            threads(**changes) as address,
            pytest.raises(LabError, match="no worker that can take") as caught,
        ):
            run_batch(cluster=address, show=False)
        assert caught.value.found == found
        assert f"dask worker {address} --nthreads 2 --resources labkit=1" in caught.value.fix


def test_a_notebook_that_kills_its_runner_fails_with_the_reason_and_the_others_go_on(place):
    # Above the kernel are the process that executes the notebook, its keeper, and the runner.
    kill = (
        "import os, psutil\npsutil.Process(os.getppid()).parent().parent().kill()\nimport time; "
        "time.sleep(60)"
    )
    drills.write_workbook(place, {"00_kills": [kill, drills.RECORD], "01_good": [drills.RECORD]})
    with threads() as address:
        result = run_batch(cluster=address, show=False)
    assert [row.status for row in result.attempts] == ["failed", "passed"]
    assert (
        result.attempts[0].reason
        == "RuntimeError: the runner: ended by the system: Killed (signal 9)"
    )


def test_an_address_where_nobody_answers_is_refused_with_the_command_that_starts_a_scheduler(
    place, monkeypatch
):
    drills.write_workbook(place, {"00_a": [drills.RECORD]})
    monkeypatch.setattr(cluster, "CONNECT_S", 1)
    for address in (
        f"tcp://127.0.0.1:{cluster_drills.free_port()}",
        "nonsense",
        "http://127.0.0.1:1",
    ):
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
    code = (
        "import sys, labkit.cli, labkit.runner.batch; print({'distributed', 'dask'} & "
        "set(sys.modules))"
    )
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
        for process in drills.marked("LABKIT_ROOT", str(tmp_path))
        for connection in process.net_connections("inet")
        if connection.status == psutil.CONN_LISTEN
    }
    os.kill(batch.pid, signal.SIGTERM)
    assert batch.wait(timeout=400) == 143
    assert heard == {"127.0.0.1"}
    assert drills.alive_after(tmp_path, 10) == 0


def test_a_task_whose_client_is_killed_ends_on_its_worker_and_the_same_command_runs_it_again(
    tmp_path,
):
    (tmp_path / "artifacts").mkdir()
    drills.write_workbook(
        tmp_path, {"00_good": [drills.WORK, drills.RECORD], "01_stays": [drills.WORK, STAY]}
    )
    with cluster_drills.cluster(tmp_path) as made:
        first = drills.start_batch(tmp_path, cluster=made.address)
        drills.wait_for(lambda: len(cluster_drills.passed(tmp_path)) == 1)
        drills.wait_for(lambda: len(drills.lines(tmp_path, "started.txt")) == 2)
        first.kill()
        first.wait()
        stays = (tmp_path / "started.txt").read_text().split()[1]
        drills.wait_for(lambda: not drills.marked("LABKIT_RUN_KEY", stays))
        second = drills.start_batch(tmp_path, cluster=made.address)
        drills.wait_for(lambda: len(drills.lines(tmp_path, "started.txt")) == 3)
        second.kill()
        second.wait()
    again = [key.split("/")[1] for key in (tmp_path / "started.txt").read_text().split()]
    assert again == ["00_good", "01_stays", "01_stays"]


@pytest.mark.release
def test_a_worker_that_hangs_loses_its_task_to_another_and_a_lost_scheduler_is_said_in_words(
    tmp_path,
):
    (tmp_path / "artifacts").mkdir()
    once = "import os, pathlib, time\nmark = pathlib.Path(os.environ['LABKIT_ROOT']) / 'once'\n"
    once += "if not mark.exists():\n    mark.touch()\n    time.sleep(600)"
    drills.write_workbook(tmp_path, {"00_drill": [drills.WORK, once, drills.RECORD]})
    with cluster_drills.cluster(tmp_path, DASK_DISTRIBUTED__SCHEDULER__WORKER_TTL="4s") as made:
        first = drills.start_batch(tmp_path, cluster=made.address)
        drills.wait_for((tmp_path / "once").exists)
        made.worker_process().suspend()
        made.start_worker("1")
        assert first.wait(timeout=400) == 0

        drills.write_workbook(tmp_path, {"00_drill": [drills.WORK, STAY, drills.RECORD]})
        second = drills.start_batch(tmp_path, cluster=made.address)
        drills.wait_for(lambda: len(drills.lines(tmp_path, "started.txt")) == 3)
        made.scheduler.kill()
        assert second.wait(timeout=400) == 1
        said = (tmp_path / "batch.log").read_text(encoding="utf-8")
        assert "The scheduler went away." in said
        assert "the same command then goes on" in said
    assert drills.alive_after(tmp_path, 10) == 0


# four processes that import much, one after the other: minutes on a busy machine
@pytest.mark.release
@pytest.mark.timeout(1000)
def test_two_clients_at_once_each_get_their_own_rows_and_all_of_them(tmp_path):
    folders = [tmp_path / "one", tmp_path / "two"]
    for folder in folders:
        (folder / "artifacts").mkdir(parents=True)
        drills.write_workbook(folder, {"00_drill": [drills.WORK, drills.RECORD]})
    with cluster_drills.cluster(folders[0]) as made:
        clients = [
            drills.start_batch(folder, cluster=made.address, seeds=(0, 1)) for folder in folders
        ]
        codes = [client.wait(timeout=800) for client in clients]
    assert codes == [0, 0], [
        (folder / "batch.log").read_text(encoding="utf-8")[-2000:] for folder in folders
    ]
    keys = [{row.run_key for row in cluster_drills.passed(folder)} for folder in folders]
    assert [len(own) for own in keys] == [2, 2] and not keys[0] & keys[1]
    for folder, own in zip(folders, keys, strict=True):
        rows = ledger.find(Memory, path=drills.ledger_of(folder))
        assert {row.run_key for row in rows} == own and len(rows) == 2 * cluster_drills.ROWS


@pytest.mark.release
def test_kills_at_random_moments_lose_nothing_double_nothing_and_leave_nobody(tmp_path):
    drill = cluster_drills.KillDrill(tmp_path / "drill", random.Random(4), notebooks=1, seeds=2)
    count = drill.run(3, within_s=3)
    assert count.pop("kills") >= 3
    assert drill.runs >= 1
    assert count == {"lost": 0, "doubled": 0, "rerun": 0, "torn": 0}
    assert drills.alive_after(tmp_path / "drill", 10) == 0


# ---- the drill notices what is broken


def test_the_drill_finds_rows_that_count_twice_rows_that_are_lost_and_finished_tasks_that_ran_again(
    tmp_path,
):
    drill = cluster_drills.KillDrill(tmp_path / "drill", notebooks=1, seeds=1)
    path, key = drills.ledger_of(drill.folder), "w/00_drill-seed-0/1"
    ledger.add(Batch(batch_key="b", settings="", started_utc=""), path=path)
    about = {
        "batch_key": "b",
        "notebook": "00_drill",
        "seed": 0,
        "profile": "quick",
        "started_utc": "",
    }
    ledger.add(
        Attempt(run_key=key, **about, status="passed", output="executed/quick/x.ipynb"), path=path
    )
    steps = [Memory(run_key=key, name=f"step-{n}", device="cpu", threads=1) for n in range(9)]
    ledger.add(*steps, path=path)
    (drill.folder / "started.txt").write_text(f"{key}\n")
    drill.note_finished()
    assert drill.counts() == {"kills": 0, "lost": 1, "doubled": 0, "rerun": 0, "torn": 1}
    ledger.add(*(replace(row, run_key="v/00_drill-seed-0/1") for row in steps), path=path)
    (drill.folder / "started.txt").write_text(f"{key}\nv/00_drill-seed-0/1\n")
    assert drill.counts() == {"kills": 0, "lost": 1, "doubled": 9, "rerun": 1, "torn": 1}
