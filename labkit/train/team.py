"""Worker processes that can send each other tensors: torch.distributed with gloo, over this machine's loopback.

    with Team(2) as team:
        sums = team.run(function, *args)  # function(*args) in each worker; the answers, by rank

They stay until the team is closed, because each needs a moment to begin. `function` may stand in a notebook: it travels
by value. A failure in one worker comes back in words, and then all of them end: the others may be waiting for it.
"""

import contextlib
import datetime
import os
import sys
import tempfile
import time
import traceback
from multiprocessing.connection import wait
from pathlib import Path

from labkit import device
from labkit.errors import LabError, Unavailable
from labkit.train.workers import begin, context

_GRACE_S = 5  # for a worker that was asked to end


def missing():
    """Why worker processes cannot talk to each other here, or None when they can."""
    import torch.distributed as dist

    if not dist.is_available():
        return "this build of torch has no torch.distributed"
    return None if dist.is_gloo_available() else "this build of torch has no gloo"


def loopback():
    """{environment variable: value} that keeps gloo's messages on this machine."""
    names = {"linux": "lo", "darwin": "lo0"}  # elsewhere gloo finds the interface by itself
    return {"GLOO_SOCKET_IFNAME": names[sys.platform]} if sys.platform in names else {}


class Team:
    """`size` worker processes, each with one thread; they begin with the first `run`, and again after a failure.

    size        workers; on a machine with as many GPUs, tensors on worker i's GPU travel by NCCL
    deadline_s  the longest that one `run` may take
    """

    def __init__(self, size, *, deadline_s=60):
        self.size, self.deadline_s = size, deadline_s
        self._workers, self._folder = [], None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def run(self, function, *args):
        """[function(*args) of worker 0, of worker 1, ...].

        Raises  Unavailable where there is no gloo, LabError when a worker raises, ends, or is not done in time
        """
        import cloudpickle

        call = cloudpickle.dumps((function, args))
        try:
            if not self._workers:
                self._start()
            for _, line in self._workers:
                with contextlib.suppress(OSError):  # a worker that has ended gives no answer either
                    line.send_bytes(call)
            return self._answers(time.monotonic() + self.deadline_s)
        except BaseException:
            self._kill()
            raise

    def close(self):
        """End the workers; the team can be used again."""
        for _, line in self._workers:
            line.close()  # a worker ends when its line is closed
        until = time.monotonic() + _GRACE_S
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
        """The answer of each worker, by rank; raises for the first that fails."""
        ranks = {line: rank for rank, (_, line) in enumerate(self._workers)}
        answers = {}
        while len(answers) < self.size:
            waiting = [line for line, rank in ranks.items() if rank not in answers]
            ready = wait(waiting, timeout=max(0, until - time.monotonic()))
            if not ready:
                late = ", ".join(str(ranks[line]) for line in waiting)
                raise LabError(f"Not done in time: workers {late}.", fix="does one wait for what no other sends?")
            for line in ready:
                answers[ranks[line]] = self._answer_of(ranks[line])
        return [answers[rank] for rank in range(self.size)]

    def _answer_of(self, rank):
        """The answer that waits in the line of a worker; raises where there is none."""
        import cloudpickle

        problem = place = None
        with contextlib.suppress(EOFError, OSError):  # it has ended
            answer, problem, place = cloudpickle.loads(self._workers[rank][1].recv_bytes())
            if problem is None:
                return answer
        self._require_all_alive()  # when one has ended, another may be the first to complain
        raise LabError(f"Worker {rank} raised {problem}", found=place, fix="mend the function, and run the cell again")

    def _require_all_alive(self):
        """Raise a LabError that names the worker that has ended."""
        wait([process.sentinel for process, _ in self._workers], timeout=0.5)
        for rank, (process, _) in enumerate(self._workers):
            if not process.is_alive():
                raise LabError(
                    f"Worker {rank} has ended in the middle of its work.",
                    found=f"exit code {process.exitcode}",
                    fix="free some memory, and run the cell again",
                )

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
    """In a worker: join the others, then answer calls until the line is closed."""
    begin()
    _join(meeting, rank, size)
    with contextlib.suppress(EOFError, OSError):
        while True:
            line.send_bytes(_answer(line.recv_bytes()))
    os._exit(0)  # at once: the others may be gone already


def _join(meeting, rank, size):
    """Make this process worker `rank` of `size`, with one thread; `meeting` is a file that all of them can write."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    os.environ.update({"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(size), **loopback()})
    dist.init_process_group(
        device.collectives(rank, size),
        store=dist.FileStore(meeting, size),
        rank=rank,
        world_size=size,
        timeout=datetime.timedelta(minutes=5),
    )


def _answer(call):
    """The pickled (value, None, None) of one call, or (None, error, place) when it fails."""
    import cloudpickle

    try:
        function, args = cloudpickle.loads(call)
        return cloudpickle.dumps((function(*args), None, None))
    except BaseException as error:
        step = traceback.extract_tb(error.__traceback__)[-1]
        return cloudpickle.dumps((None, f"{type(error).__name__}: {error}", f"{step.name}, line {step.lineno}"))
