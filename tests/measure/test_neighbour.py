"""Neighbours: they take the processor while the block runs, and are gone after it."""

import threading

import psutil
import pytest
import torch

from labkit.device import usable_cores, using_threads
from labkit.errors import LabError
from labkit.measure import neighbour, queued


@pytest.mark.parametrize(("kind", "count"), [("program", 1), ("busy programs", 2)])
def test_programs_run_during_the_block_and_are_gone_after_it_also_where_it_raises(kind, count):
    me = psutil.Process()
    before = {*me.children()}
    with pytest.raises(KeyError), neighbour(kind, count=count):
        started = {*me.children()} - before
        assert len(started) == count
        raise KeyError
    assert not any(program.is_running() for program in started)


def test_a_busy_program_computes_and_one_that_wakes_up_now_and_then_mostly_sleeps():
    def computed_s(kind):
        before = {*psutil.Process().children()}
        with neighbour(kind, count=1):
            (program,) = {*psutil.Process().children()} - before
            begin = program.cpu_times().user
            threading.Event().wait(0.6)
            return program.cpu_times().user - begin

    assert 0 < computed_s("program") < computed_s("busy programs")


def test_a_thread_runs_during_the_block_and_is_gone_after_it():
    before = threading.active_count()
    with neighbour("thread", count=2):
        assert threading.active_count() == before + 2
    assert threading.active_count() == before


def test_another_kind_is_refused_with_those_that_there_are():
    with pytest.raises(LabError, match="busy programs"), neighbour("loud"):
        pass


def test_busy_programs_are_two_for_each_core_unless_it_is_said():
    before = {*psutil.Process().children()}
    with neighbour("busy programs"):
        assert len({*psutil.Process().children()} - before) == 2 * usable_cores()


def test_a_call_into_a_queue_returns_at_once_and_waiting_returns_when_all_are_done_in_their_order():
    done, may_go_on = [], threading.Event()

    def call(number):
        may_go_on.wait()
        done.append(number)

    put_in, wait = queued(call, torch.device("cpu"))
    for number in range(3):
        put_in(number)
    assert done == []
    threading.Timer(0.05, may_go_on.set).start()
    wait()
    assert done == [0, 1, 2]


def test_a_product_that_comes_first_in_a_queue_runs_on_the_one_thread_that_the_caller_uses():
    matrix = torch.randn(300, 300)
    with using_threads(1):
        put_in, wait = queued(lambda work: work(), torch.device("cpu"))
        wait()  # the thread of the queue is there
        before = {thread.id for thread in psutil.Process().threads()}
        put_in(lambda: matrix @ matrix)
        wait()
    assert {thread.id for thread in psutil.Process().threads()} <= before
