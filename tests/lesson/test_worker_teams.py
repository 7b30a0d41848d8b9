"""Worker processes: they know each other, fail in words, and leave nothing behind."""

import os
import signal
import subprocess
import sys
import time

import psutil
import pytest
import torch
import torch.distributed as dist

from labkit.errors import LabError, Unavailable
from labkit.lesson.support import load_support

teams = load_support("worker_teams")
Team = teams.Team


@pytest.fixture(scope="module")
def team():
    with Team(2) as team:
        yield team


def summed(x):
    dist.all_reduce(x)
    return dist.get_rank(), x


def gone(pids):
    """Whether none of these processes is there any more, after a moment."""
    until = time.monotonic() + 10
    while any(map(psutil.pid_exists, pids)) and time.monotonic() < until:
        time.sleep(0.05)
    return not any(map(psutil.pid_exists, pids))


def test_workers_answer_by_rank_send_each_other_tensors_and_stay(team):
    found = team.run(summed, torch.arange(3.0))
    assert [rank for rank, _ in found] == [0, 1]
    assert all(torch.equal(x, 2 * torch.arange(3.0)) for _, x in found)
    pids = team.run(os.getpid)
    assert len({os.getpid(), *pids}) == 3
    assert team.run(os.getpid) == pids


def test_a_function_that_no_module_holds_travels_with_what_it_uses(team):
    factor = torch.tensor(3.0)
    assert team.run(lambda x: float(x * factor) + dist.get_rank(), 2.0) == [6.0, 7.0]


def test_each_worker_has_one_thread(team):
    assert team.run(torch.get_num_threads) == [1, 1]


def test_what_one_raises_comes_back_in_words_and_the_team_begins_anew(team):
    pids = team.run(os.getpid)

    def fails():
        if dist.get_rank() == 1:
            raise ValueError("no such layer")
        dist.barrier()  # waits for worker 1

    with pytest.raises(LabError, match="Worker 1 raised ValueError: no such layer"):
        team.run(fails)
    assert gone(pids)
    assert [rank for rank, _ in team.run(summed, torch.ones(1))] == [0, 1]


def test_a_worker_that_is_killed_is_named(team):
    def dies():
        if dist.get_rank() == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return True

    with pytest.raises(LabError, match="Worker 1 has ended") as caught:
        team.run(dies)
    assert "-9" in caught.value.found


def test_a_worker_that_is_killed_is_named_though_the_other_complains_first(team):
    def dies():
        if dist.get_rank() == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        dist.all_reduce(torch.ones(1))  # raises: the connection is closed

    with pytest.raises(LabError, match="Worker 1 has ended"):
        team.run(dies)


def test_workers_that_wait_for_ever_are_ended_at_the_deadline():
    with Team(2, deadline_s=30) as team:
        pids = team.run(os.getpid)
        team.deadline_s = 0.5
        with pytest.raises(LabError, match="Not done in time: workers 1"):
            team.run(lambda: time.sleep(60 * dist.get_rank()))
        assert gone(pids)


def test_closing_leaves_no_process_behind():
    team = Team(2)
    pids = team.run(os.getpid)
    team.close()
    assert gone(pids)


@pytest.mark.kills
def test_when_the_notebook_is_killed_its_workers_end_too():
    code = (
        "import os, signal\n"
        "from labkit.lesson.support import load_support\n"
        "print(*load_support('worker_teams').Team(2).run(os.getpid), flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=400)
    assert done.returncode == -signal.SIGKILL
    pids = [int(word) for word in done.stdout.split()]
    assert len(pids) == 2
    assert gone(pids)


def test_without_gloo_the_reason_is_given(monkeypatch):
    monkeypatch.setattr(dist, "is_gloo_available", lambda: False)
    assert "no gloo" in teams.missing().reason
    with pytest.raises(Unavailable, match="cannot talk to each other"):
        Team(2).run(os.getpid)
