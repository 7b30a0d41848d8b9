"""Runs workers, one or several at a time: starts them, listens to them, and leaves nothing of them behind."""

import json
import queue
import subprocess
import sys
import threading
import time
from collections import deque
from pathlib import Path

from labkit.runner.keeper import RUN_MARK, reap
from labkit.runner.worker import how_it_ended

HANG_LIMIT_S = 300  # a worker keeps the notebook's deadline itself; one that hangs is stopped so much later


class Process:
    """The worker of one notebook: how far it is, and how it ended.

    attempt      the `Attempt` row it is about
    told         what the worker is told: see `labkit.runner.worker.main`
    environment  of the worker; its kernel inherits it
    alone        whether no other notebook may run beside it
    """

    def __init__(self, attempt, told, environment, *, alone):
        self.attempt, self.told, self.environment, self.alone = attempt, told, environment, alone
        self.state = {"total": None, "started": 0, "done": 0}  # and "error", once it has ended
        self.log = Path(told["work"] + ".log")
        self.worker = self.begun = self.seconds = None

    def start(self, events):
        """Start the worker; what it says comes into the queue `events` as (self, state), at its end (self, None)."""
        self.begun = time.monotonic()
        command = [sys.executable, "-P", "-m", "labkit.runner.worker", json.dumps(self.told)]
        places = {"cwd": Path(self.told["source"]).parent, "env": self.environment}
        with self.log.open("wb") as log:
            pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": log}
            self.worker = subprocess.Popen(command, start_new_session=True, **places, **pipes)
        threading.Thread(target=self._listen, args=[events], daemon=True).start()

    def _listen(self, events):
        with self.worker.stdout as stream:
            for line in stream:
                events.put((self, json.loads(line)))
        events.put((self, None))

    def hangs(self):
        return time.monotonic() - self.begun > self.told["notebook_s"] + HANG_LIMIT_S

    def kill(self):
        """Kill the worker together with what it adopted: with the worker gone, that could no longer be found."""
        reap(RUN_MARK, self.attempt.run_key)
        self.worker.wait()

    def close(self):
        """Collect the worker after it closed its end."""
        self.kill()
        self.seconds = round(time.monotonic() - self.begun, 3)
        if "error" not in self.state:
            how, last = how_it_ended(self.worker), last_line(self.log)
            place = f"in code cell {self.state['started']}"
            self.state["error"] = f"the worker {how} {place}{f': {last}' if last else ''}"


def last_line(log):
    """The last line of a log that is not blank, or ""."""
    lines = log.read_text(encoding="utf-8", errors="replace").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "")


def run(processes, *, together, note):
    """Run the processes in order and yield each when it has ended.

    together  most at a time; one that runs alone waits for all before it, and all after it wait
    note      called with a `Process` when it starts and moves, and with None now and then
    """
    waiting, running, events = deque(processes), [], queue.Queue()
    try:
        while waiting or running:
            while waiting and _fits(waiting[0], running, together):
                running.append(waiting.popleft())
                running[-1].start(events)
                note(running[-1])
            process, state = _next_event(events)
            if state:
                process.state = state
            elif process:
                running.remove(process)
                process.close()
                yield process
            note(process if state else None)
            for late in [process for process in running if process.hangs()]:
                late.state.setdefault("error", "the worker did not end")
                late.kill()
    finally:
        for process in running:
            process.kill()


def _fits(process, running, together):
    """Whether a process may start beside those that run."""
    return not running or (len(running) < together and not process.alone and not running[0].alone)


def _next_event(events):
    """The next (process, state), or (None, None) when nothing happens for a moment."""
    try:
        return events.get(timeout=0.2)
    except queue.Empty:
        return None, None
