"""Jobs side by side: in order, in other processes, and never left behind."""

import _multiprocessing
import errno
import math
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
import torch

from labkit.errors import LabError, Unavailable
from labkit.lesson.support import load_support
from labkit.train import workers


def process_number(job):
    return job, os.getpid()


def imported(job):
    """Which of torch and its compiler a worker finds imported when it begins, and how many
    threads it uses.
    """

    return sys.modules.keys() >= {"torch", "torch._dynamo"}, torch.get_num_threads()


@pytest.mark.slow
def test_jobs_run_in_processes_of_their_own_come_back_in_order_and_say_why_one_failed(monkeypatch):
    monkeypatch.setattr(workers, "threads", lambda: 2)
    found = workers.work(process_number, [3, 1, 2])
    assert [job for job, _ in found] == [3, 1, 2]
    assert os.getpid() not in {process for _, process in found}
    with pytest.raises(ValueError, match="math domain error"):
        workers.work(math.sqrt, [4, -1])
    with pytest.raises(LabError, match="ended in the middle"):
        workers.work(os._exit, [1, 2])
    assert workers.work(math.sqrt, [4, 9]) == [2, 3]


def test_on_a_gpu_or_a_single_core_jobs_run_here(monkeypatch):
    assert workers.work(process_number, [0, 1], device="cuda:0") == [
        (0, os.getpid()),
        (1, os.getpid()),
    ]
    monkeypatch.setattr(workers, "threads", lambda: 1)
    assert workers.work(process_number, [0, 1]) == [(0, os.getpid()), (1, os.getpid())]


def test_a_single_job_runs_here_unless_it_is_to_run_apart(monkeypatch):
    monkeypatch.setattr(workers, "threads", lambda: 2)
    assert workers.work(process_number, [0]) == [(0, os.getpid())]
    [(_, elsewhere)] = workers.work(process_number, [0], apart=True)
    assert elsewhere != os.getpid()
    assert workers.work(process_number, [], apart=True) == []


@pytest.fixture
def without_shared_memory(monkeypatch):
    """Refuse what the system refuses where /dev/shm cannot be written to."""

    def refused(*_):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(_multiprocessing, "SemLock", refused)
    workers.obstacle.cache_clear()
    yield
    workers.obstacle.cache_clear()


def test_where_processes_cannot_share_semaphores_jobs_run_here_and_a_warning_says_why(
    monkeypatch, without_shared_memory
):
    monkeypatch.setattr(workers, "threads", lambda: 2)
    with pytest.warns(UserWarning, match=r"one after the other.*Read-only file system.*/dev/shm"):
        assert workers.work(process_number, [0, 1]) == [(0, os.getpid()), (1, os.getpid())]


def test_a_team_without_semaphores_is_refused_with_what_to_do(without_shared_memory):
    with pytest.raises(Unavailable, match="cannot talk to each other") as caught:
        load_support("worker_teams").Team(2).run(os.getpid)
    assert "Read-only file system" in caught.value.found
    assert "--shm-size" in caught.value.fix


@pytest.fixture
def deep_folder(tmp_path, monkeypatch):
    """A temporary folder such as a cluster gives to a job: a socket in it would have too long a
    name.
    """
    folder = tmp_path / ("a" * 60) / ("b" * 40)
    folder.mkdir(parents=True)
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr(tempfile, "tempdir", None)  # what an earlier call found
    workers.obstacle.cache_clear()
    yield folder
    workers.obstacle.cache_clear()


def test_where_the_temporary_folder_lies_too_deep_for_sockets_jobs_run_here_and_a_warning_says_why(
    monkeypatch, deep_folder
):
    monkeypatch.setattr(workers, "threads", lambda: 2)
    workers.start_workers()
    with pytest.warns(UserWarning, match="one after the other.*too long for sockets.*Set TMPDIR"):
        assert workers.work(process_number, [0, 1]) == [(0, os.getpid()), (1, os.getpid())]
    with pytest.raises(Unavailable, match=r"too long for sockets[\s\S]*Set TMPDIR"):
        load_support("worker_teams").Team(2).run(os.getpid)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="workers are spawned here")
def test_a_worker_is_forked_from_a_server_that_has_imported_torch_and_uses_one_thread():
    # in a process of its own: one process has one server, and other tests start it without torch
    code = """
from test_workers import imported, workers
workers.threads = lambda: 2
workers.start_workers()
print(workers.work(imported, [0, 1]))
"""
    folder = Path(__file__).parent
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "[(True, 1), (True, 1)]", done.stderr


def test_starting_the_workers_costs_the_reader_no_import():
    code = (
        "import sys; from labkit.train.workers import start_workers; start_workers(); assert "
        "'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=400)
