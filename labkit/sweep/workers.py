"""Independent jobs side by side, each in a process with one thread."""

import functools
import multiprocessing
import os
import pickle
import signal
import threading
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool

from labkit.device import threads, using_threads
from labkit.errors import LabError
from labkit.train.progress import progress_bar

MOST_WORKERS = 16


def work(task, jobs, device="cpu"):
    """[task(job) for job in jobs], side by side where that pays; `task` is a function of a module, or a partial."""
    side_by_side = min(threads(), MOST_WORKERS)
    if str(device) != "cpu" or min(side_by_side, len(jobs)) < 2:
        return [task(job) for job in jobs]
    # Pickled here, by value: torch would otherwise hand its tensors over as open files.
    waiting = [workers(side_by_side).submit(call, pickle.dumps((task, job))) for job in jobs]
    try:
        with progress_bar(len(jobs), 0) as bar:
            for done in as_completed(waiting):
                done.result()  # raises what the job raised, at once
                bar.update()
        return [pickle.loads(done.result()) for done in waiting]
    except BrokenProcessPool:
        workers.cache_clear()
        raise LabError(
            "A worker process ended in the middle of its job.", fix="free some memory, and run the cell again"
        ) from None
    finally:
        for each in waiting:  # after an error, or when the reader interrupts
            each.cancel()


@functools.cache
def workers(count):
    """A pool of processes; they stay, because each needs seconds to import torch."""
    fresh = multiprocessing.get_context("spawn")  # a fork of a process that has run torch's threads may hang
    return ProcessPoolExecutor(count, mp_context=fresh, initializer=begin)


def begin():
    """In a worker: leave the reader's interrupt to the notebook, and end when the notebook does, even by a kill."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    threading.Thread(target=lambda: (parent.join(), os._exit(1)), daemon=True).start()


def call(pickled):
    """One job in a worker process, with one thread."""
    task, job = pickle.loads(pickled)
    with using_threads(1):
        return pickle.dumps(task(job))
