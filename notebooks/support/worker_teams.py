"""Worker processes that can send each other tensors, by torch.distributed with gloo.

The tensors travel over this machine's loopback interface.

    with Team(2) as team:
        sums = team.run(function, *args)  # function(*args) in each worker; the answers, by rank

The workers stay until the team is closed, because each needs a moment to begin. `function` may be
defined in a notebook: it travels by value. A failure in one worker comes back in words, and then
all workers end: the others may be waiting for the one that failed.
"""

import datetime
import os
import sys
import tempfile
import traceback
from concurrent.futures import FIRST_EXCEPTION, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import active_children
from pathlib import Path

from labkit import device
from labkit.errors import LabError, Unavailable
from labkit.train.workers import Obstacle, begin, context, obstacle


def missing() -> Obstacle | None:
    """Return why worker processes cannot talk to each other here; None when they can.

    Returns an `Obstacle`: the reason, and what helps.
    """
    import torch.distributed as dist

    if not dist.is_available():
        return Obstacle(
            "this build of torch has no torch.distributed", "run this on Linux or macOS"
        )
    if not dist.is_gloo_available():
        return Obstacle("this build of torch has no gloo", "run this on Linux or macOS")
    return obstacle()


def loopback() -> dict[str, str]:
    """Return the environment variables that keep gloo's messages on this machine: {name: value}."""
    return {"GLOO_SOCKET_IFNAME": "lo" if sys.platform == "linux" else "lo0"}


class Team:
    """Worker processes, each with one thread, that can send each other tensors.

    They begin with the first `run`, and again after a failure.

    size        number of workers; on a machine with as many GPUs, tensors on worker i's GPU travel
                by NCCL
    deadline_s  the longest that one `run` may take, in seconds
    """

    def __init__(self, size, *, deadline_s=60):
        self.size = size
        self.deadline_s = deadline_s
        self._workers = []  # (pool of one process, its process) by rank
        self._folder = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def run(self, function, *args):
        """Call a function in every worker. Returns [function(*args) of worker 0, of worker 1, ...].

        Raises  Unavailable where there is no gloo, LabError when a worker raises, ends, or is not
                done in time
        """
        import cloudpickle

        call = cloudpickle.dumps((function, args))
        try:
            if not self._workers:
                self._start()
            answers = [pool.submit(_answer, call) for pool, _ in self._workers]
            _, waiting = wait(answers, timeout=self.deadline_s, return_when=FIRST_EXCEPTION)
            late = [rank for rank, answer in enumerate(answers) if answer in waiting]
            self._require_all(answers, late)
            return [cloudpickle.loads(answer.result()) for answer in answers]
        except BaseException as error:
            self.close()
            if isinstance(error, BrokenProcessPool):
                raise LabError(
                    "A worker has ended since the last run.", fix="run the cell again"
                ) from None
            raise

    def close(self):
        """End the workers; the team can be used again."""
        for pool, process in self._workers:
            process.kill()
            pool.shutdown()
        self._workers = []
        if self._folder:
            self._folder.cleanup()
            self._folder = None

    def _start(self):
        """Begin the workers, each a pool of one process.

        They meet in a file, and talk over the loopback interface.
        """
        hindered = missing()
        if hindered:
            raise Unavailable(
                "Worker processes cannot talk to each other here.",
                found=hindered.reason,
                fix=hindered.fix,
            )
        self._folder = tempfile.TemporaryDirectory(prefix="labkit-team-")
        meeting = str(Path(self._folder.name) / "meeting")
        for rank in range(self.size):
            before = active_children()
            pool = ProcessPoolExecutor(
                1, mp_context=context(), initializer=_join, initargs=(meeting, rank, self.size)
            )
            pool.submit(os.getpid)  # a pool begins its process with the first call
            (process,) = [child for child in active_children() if child not in before]
            self._workers.append((pool, process))

    def _require_all(self, answers, late):
        """Raise a LabError unless every worker answered.

        answers  the future of each worker's answer
        late     ranks of the workers that had not answered when the waiting ended
        """
        if late:
            wait(answers, timeout=0.5)  # when one has ended, another may be the first to complain
        problems = {
            rank: answer.exception() for rank, answer in enumerate(answers) if answer.done()
        }
        for rank, problem in problems.items():
            if isinstance(problem, BrokenProcessPool):
                pool, process = self._workers[rank]
                pool.shutdown()  # the exit code is known after it
                raise LabError(
                    f"Worker {rank} has ended in the middle of its work.",
                    found=f"exit code {process.exitcode}",
                    fix="free some memory, and run the cell again",
                )
        for rank, problem in problems.items():
            if problem:
                description, location = problem.args
                raise LabError(
                    f"Worker {rank} raised {description}",
                    found=location,
                    fix="mend the function, and run it again",
                )
        if late:
            ranks = ", ".join(map(str, late))
            raise LabError(
                f"Not done in time: workers {ranks}.", fix="does one wait for what no other sends?"
            )


def _join(meeting, rank, size):
    """Make this process worker `rank` of `size`, with one thread.

    meeting  path of a file that all workers can write
    """
    begin()
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    os.environ.update(
        {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(size), **loopback()}
    )
    dist.init_process_group(
        device.collectives(rank, size),
        store=dist.FileStore(meeting, size),
        rank=rank,
        world_size=size,
        timeout=datetime.timedelta(minutes=5),
    )


def _answer(call):
    """Return the pickled value of one call, in a worker.

    An error travels in words: its type may be a notebook's.
    """
    import cloudpickle

    try:
        function, args = cloudpickle.loads(call)
        return cloudpickle.dumps(function(*args))
    except BaseException as error:
        step = traceback.extract_tb(error.__traceback__)[-1]
        raise RuntimeError(
            f"{type(error).__name__}: {error}", f"{step.name}, line {step.lineno}"
        ) from None
