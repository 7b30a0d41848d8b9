"""Independent jobs side by side, each in a process that has one core to itself."""

import functools
import multiprocessing
import os
import pickle
import signal
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from typing import Any

from labkit.device import threads, using_threads
from labkit.errors import LabError

_MOST = 16
_NEEDED = ["torch._dynamo"]  # what takes seconds; the first optimizer would import it
# most of what an export to ONNX imports
EXPORT = ("torch.onnx", "torch._inductor.decomposition", "onnxscript.function_libs.torch_lib.ops")


def start_workers(*modules: Any) -> None:
    """Let a server import torch for the workers while this process goes on; called first of all, it saves seconds.

    modules  names of others that the jobs will import, such as `EXPORT`; none that starts threads
    Workers are then forked from that server, which has never run torch's threads.
    """
    from multiprocessing import forkserver

    context().set_forkserver_preload([*_NEEDED, *modules])
    forkserver.ensure_running()


def work(task: Callable, jobs: Sequence, device: Any = "cpu", *, apart: bool = False) -> list:
    """[task(job) for job in jobs], side by side where that pays; `task` is a function of a module, or a partial.

    apart  give a single job to a worker too, which may have imported already what the job needs
    """
    side_by_side, fewest = min(threads(), _MOST), 1 if apart else 2
    from labkit.train.watch import progress_bar

    with progress_bar(len(jobs), 0, "job") as bar:
        if str(device) == "cpu" and side_by_side > 1 and len(jobs) >= fewest:
            return _side_by_side(task, jobs, _pool(side_by_side), bar)
        found = []
        for job in jobs:
            found.append(task(job))
            bar.update()
        return found


def _side_by_side(task, jobs, pool, bar):
    """The answers in the order of the jobs; raises what a job raised, and cancels the rest."""
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
            "A worker process ended in the middle of its job.", fix="free some memory, and run the cell again"
        ) from None
    finally:
        for future in futures:
            future.cancel()


@functools.cache
def context():
    """How processes begin that import torch, a context of multiprocessing.

    Never as forks of this process: with torch's threads running, they may hang.
    """
    server = multiprocessing.get_context("forkserver")
    server.set_forkserver_preload(_NEEDED)
    return server


@functools.cache
def _pool(count):
    """A pool of processes; they stay, because each may need seconds to import torch."""
    return ProcessPoolExecutor(count, mp_context=context(), initializer=begin)


def begin():
    """In a worker: leave the reader's interrupt to the notebook, and end when the notebook does, even by a kill."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    threading.Thread(target=lambda: (parent.join(), os._exit(1)), daemon=True).start()


def _call(pickled):
    """One job in a worker process, with one thread."""
    task, job = pickle.loads(pickled)
    with using_threads(1):
        return pickle.dumps(task(job))
