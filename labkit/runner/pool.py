"""Runs workers side by side and holds each to its deadlines, from outside.

The kernel may hang, die, or catch every exception: the time limits are kept here, by killing the worker, its
kernel and all their children.
"""

import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections import deque
from dataclasses import asdict, dataclass
from pathlib import Path

from labkit.runner.keeper import RUN_MARK, reap

START_LIMIT_S = 240  # from the start of the worker to the first cell
CLOSE_LIMIT_S = 90  # from the last cell to the end of the worker


@dataclass(frozen=True, kw_only=True)
class Job:
    """What a worker needs to run one notebook; all of it but the last four goes to the worker as JSON.

    work     file the worker saves to
    label    the notebook's path as it is to stand in the executed notebook
    sockets  path that the names of the kernel's sockets begin with; None: the kernel uses network ports
    """

    source: str
    work: str
    label: str
    run_key: str
    parameters: dict
    solutions: bool
    sockets: str | None
    alone: bool
    environment: dict
    cell_deadline_s: float
    notebook_deadline_s: float

    def argument(self):
        """The worker's argument."""
        left_out = ("alone", "environment", "cell_deadline_s", "notebook_deadline_s")
        return json.dumps({name: value for name, value in asdict(self).items() if name not in left_out})


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a worker ended; `error` is None when papermill raised nothing."""

    error: str | None
    seconds: float
    cells_done: int
    cells_total: int | None


class Worker:
    """One running worker process."""

    def __init__(self, job, events):
        self.job, self.events = job, events
        self.begun = self.moved = time.monotonic()
        self.total, self.started, self.done, self.ended, self.error = None, 0, 0, False, None
        self.log = Path(job.work + ".log")
        command = [sys.executable, "-P", "-m", "labkit.runner.worker", job.argument()]
        own = {"start_new_session": True} if os.name == "posix" else {}
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log,
                cwd=Path(job.source).parent, env=job.environment, **own,
            )  # fmt: skip
        threading.Thread(target=self.listen, daemon=True).start()

    def listen(self):
        """Pass the worker's messages on; None when it closed its end."""
        with self.process.stdout as stream:
            for line in stream:
                self.events.put((self, json.loads(line)))
        self.events.put((self, None))

    def take(self, message):
        """Note what the worker said."""
        self.moved = time.monotonic()
        self.total = message.get("total", self.total)
        self.started = message.get("started", self.started)
        self.done = message.get("done", self.done)
        if "error" in message:
            self.ended, self.error = True, message["error"]

    def overdue(self):
        """Why this worker must be stopped now, or None."""
        now, place = time.monotonic(), f"code cell {self.started} of {self.total}"
        if self.ended:
            return "the worker did not end" if now - self.moved > CLOSE_LIMIT_S else None
        if now - self.begun > self.job.notebook_deadline_s:
            return f"the notebook ran longer than its deadline of {self.job.notebook_deadline_s:g} s, in {place}"
        in_cell = self.started > self.done
        limit = self.job.cell_deadline_s if in_cell else CLOSE_LIMIT_S if self.started else START_LIMIT_S
        if now - self.moved <= limit:
            return None
        if in_cell:
            return f"{place} ran longer than its deadline of {limit:g} s"
        return f"the worker did not {'end' if self.started else 'start its kernel'} within {limit:g} s"

    def stop(self, reason):
        """Kill the worker and all it started; what it already said of its end stays."""
        if not self.ended:
            self.ended, self.error = True, reason
        self.moved = time.monotonic()
        self.kill()

    def kill(self):
        self.process.kill()
        reap(RUN_MARK, self.job.run_key)

    def outcome(self):
        """Collect the process after it closed its end; nothing of it is left alive."""
        reap(RUN_MARK, self.job.run_key)
        code = self.process.wait()
        error = self.error if self.ended else self.crash(code)
        seconds = time.monotonic() - self.begun
        return Outcome(error=error, seconds=seconds, cells_done=self.done, cells_total=self.total)

    def crash(self, code):
        """Why a worker ended that said nothing."""
        lines = self.log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        how = f"was killed by signal {-code}" if code < 0 else f"ended with exit status {code}"
        place = f" in code cell {self.started} of {self.total}" if self.started else ""
        return f"the worker {how}{place}{': ' + lines[-1] if lines else ''}"


def run_jobs(jobs, *, side_by_side, progress):
    """Run the jobs in order, some side by side, and yield (job, Outcome) as each ends.

    side_by_side  most workers at a time; a job that runs alone waits for all before it, and all after it wait
    progress      called with (job, started, total) at each cell, and with None now and then
    """
    waiting, running, events = deque(jobs), [], queue.Queue()
    try:
        while waiting or running:
            while waiting and fits(waiting[0], running, side_by_side):
                running.append(Worker(waiting.popleft(), events))
                progress(running[-1].job, 0, None)
            worker, message = next_event(events)
            if worker and message:
                worker.take(message)
                progress(worker.job, worker.started, worker.total)
            elif worker:
                running.remove(worker)
                yield worker.job, worker.outcome()
            for late in running:
                if reason := late.overdue():
                    late.stop(reason)
            progress(None, 0, 0)
    finally:
        for worker in running:
            worker.kill()
            worker.process.wait()


def fits(job, running, side_by_side):
    """Whether a job may start beside those that run."""
    return not running or (len(running) < side_by_side and not job.alone and not running[0].job.alone)


def next_event(events):
    """The next (worker, message), or (None, None) when nothing happens for a moment."""
    try:
        return events.get(timeout=0.2)
    except queue.Empty:
        return None, None
