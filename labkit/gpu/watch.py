"""Start the worker process, give it one item after another, and end an item that takes too long.

A worker measures many items, because starting CUDA takes seconds. If it hangs, in a compiler for
example, it is killed with all processes that it started. The next item gets a new worker. The item
that was ended is tried once more, after the other items of its kind (`early` or not). By then the
compiler's cache holds what the first try has compiled.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from labkit.errors import LabError
from labkit.files import artifacts, root
from labkit.gpu import journal as journals
from labkit.gpu.items import ITEMS, chosen
from labkit.gpu.record import as_text, missing, write_record

LIMIT_S = 60  # seconds for one item
MARGIN_S = 6  # the worker's own deadline is so many seconds earlier
START_S = 180  # to import torch from a cold disk, and to start CUDA
TRIES = 2  # most tries of one item
MINUTES = 20.0
POLL_S = 0.05


def measure(
    only: Sequence[str] | None = None,
    *,
    minutes: float = MINUTES,
    tiny: bool = False,
    folder: Path | None = None,
    hardware: str | None = None,
    say: Callable = print,
) -> Path:
    """Measure items, the most useful first, and write the record. Returns the record's path.

    only      names of items to measure, also if they were measured before. None: all items that are
              not yet measured on this machine
    minutes   time limit. When it is over, no item is begun, and the running item is ended
    tiny      True: sizes that a CPU can compute; the numbers then mean nothing
    folder    folder for the journal and the record; None: artifacts/gpu
    hardware  name of this machine for people; None: the names of its GPU and its CPU
    say       function (line of text) that tells the user about the progress
    Raises    LabError: an unknown item, or a worker that does not start
    """
    queue = chosen(only)
    folder = Path(folder) if folder else artifacts() / "gpu"
    journal = journals.Journal(folder / ("tiny-" * tiny + journals.NAME))
    end = time.monotonic() + 60 * minutes
    with Worker(journal, tiny, say) as worker:
        # What is to be measured on this machine.
        facts = worker.start()
        say(
            f"measuring {hardware or facts['gpu'] or facts['cpu']}, torch {facts['torch']}; rows: "
            f"{journal.path}"
        )
        if only is None:
            queue = [name for name in queue if not worker.has_done(name)]
            say(
                "to measure: "
                f"{', '.join(queue) or 'nothing, all is done (--only ITEM measures it again)'}"
            )
        path = write_record(journal, folder, facts, hardware=hardware, tiny=tiny)

        # One item after the other; the record is written after each.
        tries = dict.fromkeys(queue, 0)
        while queue:
            name = queue.pop(0)
            tries[name] += 1
            finished = worker.do(name, end)
            if not finished and tries[name] < TRIES:
                queue.append(name)
                # the sort is stable: items with equal keys stay in their order
                queue.sort(key=lambda name: (not ITEMS[name].early, tries[name]))
            path = write_record(journal, folder, facts, hardware=hardware, tiny=tiny)
    say(f"record: {path}")
    return path


class Worker:
    """The worker process, as the process that starts it sees it. A pipe carries the items to it.

    journal  the `Journal` to which the worker writes
    tiny     True: sizes that a CPU can compute
    say      function (line of text); it is called with each new row as a text
    lines    all lines of the journal so far
    offset   offset in the journal behind these lines
    process  the running process, or None
    facts    properties of the machine, {field: value}
    last     set of the arms, as `described` texts, during which a worker was killed. They are
             measured last in the next try
    """

    def __init__(self, journal: journals.Journal, tiny: bool, say: Callable):
        self.journal = journal
        self.tiny = tiny
        self.say = say
        self.lines, self.offset = journal.lines_from(0)
        self.process: Any = None  # a Popen, while one runs
        self.facts: dict = {}
        self.last: set = set()  # arms in which a worker was ended

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kill()

    def start(self) -> dict:
        """Start the process. Returns the properties of the machine: {field: value}.

        The process itself writes them to the journal, as its first line.

        Raises  LabError: the process ends, or writes nothing within `START_S` seconds
        """
        paths = os.pathsep.join(filter(None, [str(root()), os.environ.get("PYTHONPATH")]))
        command = [sys.executable, "-m", "labkit.gpu.worker", str(self.journal.path)]
        if self.tiny:
            command.append("--tiny")
        log_path = self.journal.path.with_name("worker.log")
        with log_path.open("ab") as log:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env={**os.environ, "PYTHONPATH": paths},
            )

        # Its first line says which machine this is.
        pid = self.process.pid
        line = self.wait(lambda line: line["kind"] == "machine" and line["process"] == pid, START_S)
        if line is None:
            code = self.process.poll()
            self.kill()
            found = f"nothing in {START_S} s"
            if code is not None:
                found = f"it ended with {code}"
            raise LabError(
                "The process that measures did not start.",
                expected="torch",
                found=found,
                fix=f"read {log_path}: what it said stands there",
            )
        self.facts = {"gpu": None} | {
            name: fact for name, fact in line.items() if name not in ("kind", "process")
        }
        return self.facts

    def has_done(self, item):
        """Return True if an item was measured to its end on this machine, with the same torch.

        item  name of the item
        """
        key = self.facts["machine_key"]
        done_lines = [
            line for line in self.lines if line["kind"] == "done" and line["item"] == item
        ]
        return any(line["machine_key"] == key and line["tiny"] == self.tiny for line in done_lines)

    def do(self, item: str, end: float) -> bool:
        """Let the worker measure an item, for at most `LIMIT_S` seconds and until `end` at most.

        If the item fails or is ended, each of its arms without a row gets a row with the reason.
        Returns False if it was ended, so that another try may help; otherwise True.

        item  name of the item
        end   deadline of all items, on the clock of `time.monotonic`
        """
        limit = min(LIMIT_S, end - time.monotonic())
        if limit <= 0:
            self.give_up(item, [], "the minutes were over")
            return True
        if self.process is None:
            self.start()
        process = self.process
        first_line = len(self.lines)  # of this item
        order = {"item": item, "seconds": max(0, limit - MARGIN_S), "last": sorted(self.last)}
        with suppress(BrokenPipeError):  # the process has ended: `wait` notices it
            process.stdin.write(json.dumps(order).encode() + b"\n")
            process.stdin.flush()
        done = self.wait(lambda line: line["kind"] == "done" and line["item"] == item, limit)
        item_lines = self.lines[first_line:]

        # End a process that is not done, or whose GPU refuses everything; note the arm that it was
        # measuring.
        if done is None:
            reason = self.ended_because(process, limit)
            labels = [line["label"] for line in item_lines if line["kind"] == "arm"]
            self.last |= set(labels[-1:])
            self.kill()
        else:
            reason = done["reason"]
            if not done["fit"]:
                self.kill()
        if reason:
            self.give_up(item, item_lines, reason)
        return done is not None

    def ended_because(self, process, limit):
        """Return a text that says why the worker did not finish an item.

        process  the worker's process; if it still runs, the time was over
        limit    seconds that the item was allowed
        """
        code = process.poll()
        if code is None:
            return f"ended after {limit:.0f} s"
        return f"the process that measures ended with {code}"

    def give_up(self, item, lines, reason):
        """Write a row with the reason for each arm of an item that has no row yet.

        item    name of the item
        lines   lines of the journal that the item wrote
        reason  why the arms were not measured
        """
        card = self.facts["gpu"]
        machine = {"device": "cuda" if card else "cpu", "torch": self.facts["torch"], "card": card}
        for row in missing(item, lines, reason):
            self.journal.append(**row, **machine, measured_utc=journals.now())
        self.read()

    def wait(self, is_awaited, seconds):
        """Wait for a certain line of the journal, and return it.

        Returns None if `seconds` are over, or if the process has ended.

        is_awaited  function (line, a dictionary) -> True for that line
        """
        end = time.monotonic() + seconds
        while True:
            # checked before reading, so that the last lines of a process that ends are read
            running = self.process.poll() is None
            for line in self.read():
                if is_awaited(line):
                    return line
            if not running or time.monotonic() > end:
                return None
            time.sleep(POLL_S)

    def read(self):
        """Return the new lines of the journal. Rows among them are passed to `say`, as texts."""
        lines, self.offset = self.journal.lines_from(self.offset)
        self.lines += lines
        for line in lines:
            if line["kind"] == "row":
                self.say(as_text(line))
        return lines

    def kill(self):
        """Kill the process, and all processes that it started."""
        if self.process is not None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            with suppress(BrokenPipeError):
                self.process.stdin.close()
            self.process = None
