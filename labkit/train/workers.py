"""Independent jobs side by side, each in a process that has one core to itself."""

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

_MOST = 16
SHARED_MEMORY = "Let this system have a /dev/shm that can be written to (docker run --shm-size=1g)."
SHORT_FOLDER = "Set TMPDIR to a folder with a shorter name, such as /tmp, and start again."
# as multiprocessing names one, below the temporary folder
_SOCKET = Path("pymp-12345678", "listener-12345678")
_NEEDED = ["torch._dynamo"]  # what takes seconds; the first optimizer would import it


def start_workers() -> None:
    """Let a server import torch for the workers while this process goes on; called first of all, it
    saves seconds.

    Workers are then forked from that server, which has never run torch's threads.
    """
    from multiprocessing import forkserver

    if obstacle():  # `work` says so
        return
    context()
    forkserver.ensure_running()


def work(task: Callable, jobs: Sequence, device: Any = "cpu", *, apart: bool = False) -> list:
    """Do jobs side by side where that pays. Returns [task(job) for job in jobs].

    task   a function of a module, or a partial of one

    apart  give a single job to a worker too, which may have imported already what the job needs

    Where processes cannot work together, a warning says so, and the jobs are done here.
    """
    from labkit.train.watch import progress_bar

    side_by_side = min(threads(), _MOST)
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
    """Return the answers in the order of the jobs; raises what a job raised, and cancels the
    rest.
    """
    futures = []
    try:
        # Pickled here, by value: torch would otherwise hand its tensors over as open files.
        futures += [pool.submit(_call, pickle.dumps((task, job))) for job in jobs]
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
    """Why processes cannot work together on this system, and what to do about it."""

    reason: str
    fix: str


@functools.cache
def obstacle() -> Obstacle | None:
    """Return what keeps processes from working together here; None: nothing does.

    They share semaphores, which Linux keeps in /dev/shm, and hand over tensors and jobs through
    sockets, which lie in the temporary folder: the name of a socket may not be long, and clusters
    give their jobs folders that lie deep.
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
    """Return how processes begin that import torch, a context of multiprocessing.

    Never as forks of this process: with torch's threads running, they may hang.
    """
    server = multiprocessing.get_context("forkserver")
    server.set_forkserver_preload(_NEEDED)
    return server


@functools.cache
def _pool(count):
    """Return a pool of processes; they stay, because each may need seconds to import torch."""
    return ProcessPoolExecutor(count, mp_context=context(), initializer=begin)


def begin() -> None:
    """In a worker: leave the reader's interrupt to the notebook, and end when the notebook does,
    even by a kill.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent):
    """Wait until the parent has ended, and end this process."""
    parent.join()
    os._exit(1)


def _call(pickled):
    """Do one job in a worker process, with one thread. Returns the pickled answer."""
    task, job = pickle.loads(pickled)
    with using_threads(1):
        return pickle.dumps(task(job))
