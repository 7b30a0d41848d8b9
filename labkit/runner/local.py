"""Runs the tasks of a batch on this machine, each in a worker process of its own."""

import os
import uuid
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from labkit import device, ledger
from labkit.files import artifacts, root
from labkit.runner import keeper, outcome, process
from labkit.runner.tasks import label

# Most seconds for one cell and for one whole notebook, and seconds that a notebook takes as a rule.
PROFILES = {"quick": (300, 900, 45), "lab": (3600, 4 * 3600, 300), "paper": (24 * 3600, 72 * 3600, 3600)}
KERNEL_ENDS_IN_S = 1  # half of it to end by itself, half after it was terminated


def run(jobs, settings, *, private, progress, go_on):
    """Run tasks and yield the `Attempt` of each when it has ended.

    jobs      list of (`labkit.runner.tasks.Task`, `Attempt`)
    settings  `labkit.runner.settings.Settings`
    private   (runtime folder, work folder, token): see `keeper.private_places`
    progress  a `Progress`
    go_on     called now and then; raises when the batch was told to stop
    """
    running = _Running(settings, private, progress, go_on)
    waiting = [running.process(task, attempt) for task, attempt in jobs]
    with closing(process.run(waiting, together=settings.at_a_time(), note=running.note)) as ended:
        for one in ended:
            yield running.settle(one)


class _Running:
    """The running of one batch; see `run`."""

    def __init__(self, settings, private, progress, go_on):
        self.settings, self.progress, self.go_on = settings, progress, go_on
        self.runtime, self.work, self.token = private
        self.rows = outcome.Rows()

    def process(self, task, attempt):
        """What is to run a notebook."""
        alone = task.source.measures and not self.settings.together
        cell_s, notebook_s, _ = PROFILES[self.settings.profile]
        told = {
            "source": str(task.source.path.resolve()),
            "work": str(self.work / f"{attempt.run_key.replace('/', '_')}.ipynb"),
            "run_key": attempt.run_key,
            "parameters": task.parameters,
            "solutions": self.settings.solutions,
            "kernel": self._kernel(),
            "cell_s": self.settings.cell_deadline_s or cell_s,
            "notebook_s": notebook_s,
        }
        return process.Process(attempt, told, self._environment(attempt, alone=alone), alone=alone)

    def _kernel(self):
        """Traits of a `KernelManager`: a connection file that the keeper removes, and sockets where there are such.

        A kernel clears up within moments of being told to end; then Python takes seconds to forget all it imported.
        """
        prefix = str(self.runtime / uuid.uuid4().hex[:8])
        sockets = {"transport": "ipc", "ip": prefix} if os.name == "posix" else {}
        return {"connection_file": f"{prefix}.json", "shutdown_wait_time": KERNEL_ENDS_IN_S, **sockets}

    def _environment(self, attempt, *, alone):
        """The worker's environment, which its kernel inherits."""
        own = {
            keeper.RUN_MARK: attempt.run_key,
            keeper.BATCH_MARK: self.token,
            "LABKIT_BATCH_KEY": attempt.batch_key,
            "LABKIT_HEADLESS": "1",
            "LABKIT_ROOT": str(root().resolve()),
            "LABKIT_ARTIFACTS": str(artifacts().resolve()),
            "JUPYTER_PREFER_ENV_PATH": "1",  # this environment's kernel, not one of the same name elsewhere
            "JUPYTER_RUNTIME_DIR": str(self.runtime),
            "IPYTHONDIR": str(self.runtime / f"ipython-{uuid.uuid4().hex[:8]}"),
        }
        inherited = {name: value for name, value in os.environ.items() if name != "JUPYTER_PATH"}
        if self.settings.strict:
            own["LABKIT_STRICT"] = "1"
        if not alone and self.settings.at_a_time() > 1:  # share the cores instead of fighting for them
            share = max(1, device.usable_cores() // self.settings.at_a_time())
            own["OMP_NUM_THREADS"] = os.environ.get("OMP_NUM_THREADS", str(share))
        return {**inherited, **own}

    def note(self, one):
        """A process started, moved, or (None) time passed."""
        self.go_on()
        if one is None:
            return self.progress.tick()
        name = label(one.attempt)
        if name not in self.progress.begun:
            one.attempt = replace(one.attempt, started_utc=ledger.now())
            ledger.add(one.attempt)
            self.progress.begin(name)
        return self.progress.tick(name, f"cell {one.state['started']}/{one.state['total'] or '?'}")

    def settle(self, ended):
        """Judge a run, publish its output, record it."""
        target, work = artifacts() / ended.attempt.output, Path(ended.told["work"])
        lost = self.rows.lost()
        reason = outcome.flaw(ended) or lost
        if reason is None and self.settings.strict:
            from labkit.lesson import grading  # only here: a task of a cluster should begin soon

            reason = grading.flaw(ended.told["source"], solved=bool(self.settings.solutions))
        try:
            path = outcome.publish(work, target, reason)
        except OSError as error:
            path, reason = None, "; ".join(filter(None, [reason, f"the notebook could not be published: {error}"]))
        attempt = replace(
            ended.attempt,
            status="failed" if reason else "passed",
            reason=reason,
            seconds=ended.seconds,
            cells_done=ended.state["done"],
            cells_total=ended.state["total"],
            output=path.relative_to(artifacts()).as_posix() if path else None,
            finished_utc=ledger.now(),
        )
        try:
            ledger.add(attempt)
        finally:
            self.progress.end(attempt)  # also where the disk is full: the reason is said at least
        return attempt
