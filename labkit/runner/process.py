"""Runs tasks on this machine, each in a worker process of its own, and leaves nothing of them behind."""

import json
import os
import subprocess
import sys
import time
import uuid
from dataclasses import replace

from labkit import device, ledger
from labkit.files import artifacts, publish, root, write_text
from labkit.runner import keeper
from labkit.runner.tasks import PROFILES, label

HANG_LIMIT_S = 300  # a worker keeps the notebook's deadline itself; one that hangs is killed so much later
KERNEL_ENDS_IN_S = 1  # a kernel clears up within moments; then Python takes seconds to forget all it imported
POLL_S = 0.1


def run(jobs, settings, *, private, progress, go_on):
    """Run tasks and yield the `Attempt` of each when it has ended.

    jobs      list of (`labkit.runner.tasks.NotebookTask`, `Attempt`)
    settings  `labkit.runner.tasks.BatchSettings`
    private   (runtime folder, work folder, token): see `keeper.private_places`
    progress  a `Progress`
    go_on     called now and then; raises when the batch was told to stop
    """
    waiting = [_Worker(task, attempt, settings, private) for task, attempt in jobs]
    running = []
    try:
        while waiting or running:
            go_on()
            while waiting and _fits(waiting[0], running, settings.at_a_time()):
                worker = waiting.pop(0)
                worker.start()
                running.append(worker)
                progress.begin(worker.name)
            for worker in [worker for worker in running if worker.has_ended()]:
                attempt = worker.settled()
                running.remove(worker)
                progress.end(attempt)
                ledger.add(attempt)
                yield attempt
            progress.tick({worker.name: worker.place() for worker in running})
            time.sleep(POLL_S)
    finally:
        for worker in running:
            worker.kill()


def _fits(worker, running, together):
    """Whether a worker may start beside those that run; one that runs alone waits for all, and all after it wait."""
    return not running or (len(running) < together and not worker.alone and not running[0].alone)


class _Worker:
    """The process that runs one notebook: how far it is, and how it ended."""

    def __init__(self, task, attempt, settings, private):
        self.task, self.attempt, self.settings = task, attempt, settings
        runtime, work, token = private
        self.name = label(attempt)
        self.alone = task.source.measures and not settings.together
        self.work = work / f"{attempt.run_key.replace('/', '_')}.ipynb"
        self.said, self.log = self.work.with_suffix(".said"), self.work.with_suffix(".log")
        self.kernel = runtime / uuid.uuid4().hex[:8]  # where its files begin; paths of sockets must stay short
        self.marks = {keeper.RUN_MARK: attempt.run_key, keeper.BATCH_MARK: token, "JUPYTER_RUNTIME_DIR": runtime}
        self.state = {"total": None, "started": 0, "done": 0}
        self.process = self.begun = None

    def start(self):
        """Start the process, and note in the ledger that it runs."""
        self.begun = time.monotonic()
        self.attempt = replace(self.attempt, started_utc=ledger.now())
        ledger.add(self.attempt)
        told = {
            "input_path": _escaped(self.task.source.path.resolve()),
            "output_path": _escaped(self.work),
            "parameters": self.task.parameters,
            "solutions": self.settings.solutions is True,
            "execution_timeout": self.settings.cell_deadline_s,
            "kernel": {
                "connection_file": f"{self.kernel}.json",
                "shutdown_wait_time": KERNEL_ENDS_IN_S,
                "transport": "ipc",
            },
        }
        command = [sys.executable, "-P", "-m", "labkit.runner.worker", json.dumps(told)]
        with self.said.open("wb") as said, self.log.open("wb") as log:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=log,
                cwd=self.task.source.path.parent,
                env=self._environment(),
                start_new_session=True,
            )

    def _environment(self):
        """The environment of the worker, which its kernel inherits."""
        environment = {
            **os.environ,
            **self.marks,
            "LABKIT_BATCH_KEY": self.attempt.batch_key,
            "LABKIT_ROOT": root().resolve(),
            "LABKIT_ARTIFACTS": artifacts().resolve(),
            "JUPYTER_PREFER_ENV_PATH": "1",  # this environment's kernel, not one of the same name elsewhere
            "IPYTHONDIR": f"{self.kernel}-ipython",
        }
        environment.pop("JUPYTER_PATH", None)
        together = self.settings.at_a_time()
        if not self.alone and together > 1:  # share the cores instead of fighting for them
            environment.setdefault("OMP_NUM_THREADS", str(max(1, device.usable_cores() // together)))
        return environment

    def has_ended(self):
        """Whether the process ended, said its last word, or hangs."""
        ended = self.process.poll() is not None  # before its words are read: then none is missed
        whole_lines = self.said.read_text(encoding="utf-8").split("\n")[:-1]
        if whole_lines:
            self.state |= json.loads(whole_lines[-1])
        if not ended and time.monotonic() - self.begun > PROFILES[self.settings.profile][1] + HANG_LIMIT_S:
            self.state["error"] = "the worker did not end"
        return ended or "error" in self.state

    def place(self):
        """How far the notebook is, in words."""
        return f"cell {self.state['started']}/{self.state['total'] or '?'}"

    def kill(self):
        """Kill the process together with what it adopted: with the process gone, that could no longer be found."""
        keeper.reap(keeper.RUN_MARK, self.attempt.run_key)
        self.process.wait()

    def settled(self):
        """The `Attempt` as it ended; its output is published."""
        self.kill()
        seconds = round(time.monotonic() - self.begun, 3)
        reason = self._flaw()
        path = None
        try:
            path = _publish(self.work, artifacts() / self.attempt.output, reason)
        except OSError as error:
            reason = "; ".join(filter(None, [reason, f"the notebook could not be published: {error}"]))
        return replace(
            self.attempt,
            status="failed" if reason else "passed",
            reason=reason,
            seconds=seconds,
            cells_done=self.state["done"],
            cells_total=self.state["total"],
            output=path.relative_to(artifacts()).as_posix() if path else None,
            finished_utc=ledger.now(),
        )

    def _flaw(self):
        """Why the run does not count, or None."""
        if "error" not in self.state:
            last = last_line(self.log)
            where = f"in code cell {self.state['started']}"
            return f"the worker {how_it_ended(self.process)} {where}{f': {last}' if last else ''}"
        reason = self.state["error"]
        if reason or not (self.settings.strict or self.settings.solutions == "both"):
            return reason
        from labkit.lesson import grading  # here: it takes a second to import

        return grading.flaw(self.task.source.path, solved=bool(self.settings.solutions))


def _publish(work, target, reason):
    """Put an executed notebook in its place; a failed one beside the good ones, the reason on top.

    returns  the path, or None when there is nothing to publish
    """
    failed = target.with_suffix(".failed.ipynb")
    target.parent.mkdir(parents=True, exist_ok=True)
    if reason is None:
        publish(work, target)
        failed.unlink(missing_ok=True)
        return target
    try:
        page = json.loads(work.read_bytes())
    except (OSError, ValueError):
        failed.unlink(missing_ok=True)
        return None
    note = {
        "cell_type": "markdown",
        "id": "why-it-failed",
        "metadata": {"tags": ["papermill-error-cell-tag"]},
        "source": f"**This run does not count:** {reason}",
    }
    write_text(failed, json.dumps(page | {"cells": [note, *page["cells"]]}))
    return failed


def _escaped(path):
    """A path whose braces papermill does not take for names of parameters."""
    return str(path).replace("{", "{{").replace("}", "}}")


def last_line(log):
    """The last line of a log that is not blank, or ""."""
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return lines[-1].strip() if lines else ""


def how_it_ended(process):
    """How a process ended, in words; "died" where its exit status is not known."""
    code = None if process is None else process.poll()
    if code is None:
        return "died"
    return f"was killed by signal {-code}" if code < 0 else f"ended with exit status {code}"
