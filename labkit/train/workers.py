"""Run independent jobs in parallel, each in a process with one core to itself."""

import functools
import multiprocessing
import os
import pickle
import signal
import tempfile
import threading
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any, NamedTuple

from labkit.device import fits_socket, threads, using_threads
from labkit.errors import LabError

_MAX_PROCESSES = 16
SHARED_MEMORY = "Let this system have a /dev/shm that can be written to (docker run --shm-size=1g)."
SHORT_FOLDER = "Set TMPDIR to a folder with a shorter name, such as /tmp, and start again."
# a path as long as that of multiprocessing's sockets, below the temporary folder
_SOCKET = Path("pymp-12345678", "listener-12345678")
_PRELOADED = ["torch._dynamo"]  # takes seconds to import, with the first optimizer


def start_workers() -> None:
    """Start the server process from which workers are forked, and let it import torch meanwhile.

    A program that calls this first of all saves seconds, because it goes on while the server
    imports torch. The server starts none of torch's threads, so its forks do not hang.
    """
    from multiprocessing import forkserver

    if obstacle():  # `work` will warn
        return
    context()
    forkserver.ensure_running()


def work(task: Callable, jobs: Sequence, device: Any = "cpu", *, apart: bool = False) -> list:
    """Return [task(job) for job in jobs], computed in parallel where that is faster.

    The jobs run in worker processes, one thread each, where `device` is "cpu", torch has more than
    one thread, and there are two jobs or more. Otherwise they run one after the other in this
    process. Where processes cannot work together on this system, the jobs run in this process as
    well, and a warning says why.

    task    a function of a module, or a partial of one
    device  device of the jobs
    apart   True: a single job goes to a worker process, too, which may have imported already what
            the job needs
    Raises  LabError where a worker process ended in the middle of its job; any error of a job
    """
    from labkit.train.watch import progress_bar

    side_by_side = min(threads(), _MAX_PROCESSES)
    fewest = 1 if apart else 2
    with progress_bar(len(jobs), 0, "job") as bar:
        if str(device) == "cpu" and side_by_side > 1 and len(jobs) >= fewest:
            hindered = obstacle()
            if hindered is None:
                return _side_by_side(task, jobs, _pool(side_by_side), bar)
            warnings.warn(
                f"The jobs are done one after the other: {hindered.reason}. {hindered.fix}",
                stacklevel=2,
            )
        answers = []
        for job in jobs:
            answers.append(task(job))
            bar.update()
        return answers


def _side_by_side(task, jobs, pool, bar):
    """Run jobs in a pool, and return the answers in the order of the jobs.

    The first exception of a job is raised here, and the jobs that have not begun are cancelled.

    task  function of one job
    pool  a `ProcessPoolExecutor`
    bar   the progress bar
    """
    futures = []
    try:
        # Pickled here, by value: torch would otherwise hand its tensors over as open files.
        futures += [pool.submit(_run_pickled, pickle.dumps((task, job))) for job in jobs]
        waiting = futures
        while waiting:
            done, waiting = wait(waiting, timeout=1, return_when=FIRST_COMPLETED)
            for future in done:
                future.result()
            bar.update(len(done))
            bar.refresh()  # its clock goes on while nothing ends
        return [pickle.loads(future.result()) for future in futures]
    except BrokenProcessPool:
        _pool.cache_clear()
        raise LabError(
            "A worker process ended in the middle of its job.",
            fix="free some memory, and run the cell again",
        ) from None
    finally:
        for future in futures:
            future.cancel()


class Obstacle(NamedTuple):
    """The reason why processes cannot work together on this system, and how to mend it.

    reason  the reason, as a part of a sentence
    fix     what to do, as sentences
    """

    reason: str
    fix: str


@functools.cache
def obstacle() -> Obstacle | None:
    """Return the `Obstacle` that keeps processes from working together here, or None.

    Two obstacles are possible. Processes share semaphores, which Linux keeps in /dev/shm; the
    system may lack that folder. Processes exchange tensors and jobs through sockets in the
    temporary folder; the path of a socket may not be long, and a cluster may give its jobs a
    temporary folder with a long path.
    """
    try:
        context().Lock()
    except (OSError, ImportError) as error:
        return Obstacle(f"processes cannot share semaphores here ({error})", SHARED_MEMORY)
    folder = Path(tempfile.gettempdir())
    if not fits_socket(folder / _SOCKET):
        return Obstacle(
            f"the name of the temporary folder is too long for sockets ({folder})", SHORT_FOLDER
        )
    return None


@functools.cache
def context():
    """Return the multiprocessing context for processes that import torch.

    It never forks this process: a fork may hang where torch's threads run.
    """
    server = multiprocessing.get_context("forkserver")
    server.set_forkserver_preload(_PRELOADED)
    return server


@functools.cache
def _pool(count):
    """Return a pool of `count` processes.

    The pool is kept for the next call, because each process needs seconds to import torch.
    """
    return ProcessPoolExecutor(count, mp_context=context(), initializer=begin)


def begin() -> None:
    """Prepare a worker process: it ignores Ctrl-C, and ends when its parent process ends.

    It also ends where the parent was killed.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent):
    """Wait until the parent process has ended, then end this process."""
    parent.join()
    os._exit(1)


def _run_pickled(pickled):
    """Run one job in a worker process, with one thread, and return the pickled answer.

    pickled  the pickled pair (task, job)
    """
    task, job = pickle.loads(pickled)
    with using_threads(1):
        return pickle.dumps(task(job))
