"""Worker processes that can send each other tensors: torch.distributed with gloo, over this machine's loopback.

    with Team(2) as team:
        sums = team.run(function, *args)  # function(*args) in each worker; the answers, by rank

They stay until the team is closed, because each needs a moment to begin. `function` may stand in a notebook: it travels
by value. What goes wrong in a worker comes back in words, and then all of them end: the others may be waiting for it.
"""

import contextlib
import datetime
import multiprocessing.connection
import os
import sys
import tempfile
import time
import traceback
from pathlib import Path

from labkit import device
from labkit.errors import LabError, Unavailable
from labkit.train.workers import begin, context

LOOPBACK = {"linux": "lo", "darwin": "lo0"}  # what gloo calls the interface; elsewhere it finds one by itself
GRACE_S = 5  # for a worker that was asked to end


def missing():
    """Why worker processes cannot talk to each other here, or None when they can."""
    import torch.distributed as dist

    if not dist.is_available():
        return "this build of torch has no torch.distributed"
    return None if dist.is_gloo_available() else "this build of torch has no gloo"


class Team:
    """`size` worker processes, each with one thread; they begin with the first `run`, and again after a failure.

    size        workers; on a machine with as many GPUs, tensors on worker i's GPU travel by NCCL
    deadline_s  the longest that one `run` may take, unless it says otherwise
    """

    def __init__(self, size, *, deadline_s=60):
        self.size, self.deadline_s = size, deadline_s
        self._workers, self._folder = [], None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def run(self, function, *args, deadline_s=None):
        """[function(*args) of worker 0, of worker 1, ...].

        Raises  Unavailable where there is no gloo, LabError when a worker raises, ends, or is not done in time
        """
        import cloudpickle

        call = cloudpickle.dumps((function, args))
        try:
            if not self._workers:
                self._start()
            for rank, (_, line) in enumerate(self._workers):
                with self._lost(rank):
                    line.send_bytes(call)
            return self._answers(time.monotonic() + (deadline_s or self.deadline_s))
        except BaseException:
            self._kill()
            raise

    def pids(self):
        """Process numbers of the workers that are running."""
        return [process.pid for process, _ in self._workers if process.is_alive()]

    def close(self):
        """End the workers; the team can be used again."""
        for _, line in self._workers:
            line.close()  # a worker ends when there is nobody to send it work
        until = time.monotonic() + GRACE_S
        for process, _ in self._workers:
            process.join(max(0, until - time.monotonic()))
        self._kill()

    def _start(self):
        """Begin the workers: they meet in a file, and talk over the loopback interface."""
        reason = missing()
        if reason:
            raise Unavailable(
                "Worker processes cannot talk to each other here.", found=reason, fix="run this on Linux or macOS"
            )
        self._folder = tempfile.TemporaryDirectory(prefix="labkit-team-")
        meeting = str(Path(self._folder.name) / "meeting")
        for rank in range(self.size):
            here, there = context().Pipe()
            process = context().Process(target=_serve, args=(there, meeting, rank, self.size), daemon=True)
            process.start()
            there.close()
            self._workers.append((process, here))

    def _answers(self, until):
        """What each worker answers; raises for the first that fails."""
        import cloudpickle

        answers, waiting = {}, {line: rank for rank, (_, line) in enumerate(self._workers)}
        while waiting:
            ready = multiprocessing.connection.wait(list(waiting), timeout=max(0, until - time.monotonic()))
            if not ready:
                names = ", ".join(map(str, sorted(waiting.values())))
                raise LabError(f"Not done in time: workers {names}.", fix="does one wait for what no other sends?")
            for line in ready:
                rank = waiting.pop(line)
                with self._lost(rank):
                    answers[rank], problem = cloudpickle.loads(line.recv_bytes())
                if problem:
                    self._blame(rank, *problem)
        return [answers[rank] for rank in range(self.size)]

    def _blame(self, rank, what, place):
        """Raise what a worker raised; or that another has ended, which is what the first one then complains about."""
        ends = {process.sentinel: other for other, (process, _) in enumerate(self._workers)}
        for gone in multiprocessing.connection.wait(list(ends), timeout=0.5):
            with self._lost(ends[gone]):
                raise EOFError
        raise LabError(f"Worker {rank} raised {what}", found=place, fix="mend the function, and run the cell again")

    @contextlib.contextmanager
    def _lost(self, rank):
        """Say which worker has ended, in place of a broken pipe."""
        try:
            yield
        except (EOFError, OSError):
            process = self._workers[rank][0]
            process.join(GRACE_S)
            raise LabError(
                f"Worker {rank} has ended in the middle of its work.",
                found=f"exit code {process.exitcode}",
                fix="free some memory, and run the cell again",
            ) from None

    def _kill(self):
        for process, line in self._workers:
            line.close()
            process.kill()
            process.join()
        self._workers = []
        if self._folder:
            self._folder.cleanup()
            self._folder = None


def _serve(line, meeting, rank, size):
    """In a worker: join the others, then answer calls until nobody can send one any more."""
    begin()
    join(meeting, rank, size)
    with contextlib.suppress(EOFError, OSError):
        while True:
            line.send_bytes(_answer(line.recv_bytes()))
    os._exit(0)  # at once: the others may be gone already


def join(meeting, rank, size):
    """Make this process worker `rank` of `size`, with one thread; `meeting` is a file that all of them can write."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    os.environ.update({"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(size)})
    if sys.platform in LOOPBACK:
        os.environ["GLOO_SOCKET_IFNAME"] = LOOPBACK[sys.platform]
    dist.init_process_group(
        device.collectives(rank, size),
        store=dist.FileStore(meeting, size),
        rank=rank,
        world_size=size,
        timeout=datetime.timedelta(minutes=5),
    )


def _answer(call):
    """The pickled (value, None) of one call, or (None, (error, place)) when it fails."""
    import cloudpickle

    try:
        function, args = cloudpickle.loads(call)
        return cloudpickle.dumps((function(*args), None))
    except BaseException as error:
        step = traceback.extract_tb(error.__traceback__)[-1]
        return cloudpickle.dumps((None, (f"{type(error).__name__}: {error}", f"{step.name}, line {step.lineno}")))
