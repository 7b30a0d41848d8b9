"""The worker's side of a cluster: `dask worker ADDRESS --preload labkit.runner.remote`.

A worker that was started so offers a dask resource named after the version of the course it has; a client of another
version therefore never gets it. Each task runs in a process and a folder of its own, with the runner of this package,
and goes back as one parcel (`labkit.runner.parcels`).
"""

import fcntl
import getpass
import json
import os
import platform
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict
from pathlib import Path

import psutil
from filelock import FileLock, Timeout

from labkit.errors import LabError, explained
from labkit.files import artifacts, root
from labkit.ledger.rows import Attempt
from labkit.runner import keeper, parcels, sources
from labkit.runner.process import last_line

LEAST_FREE_BYTES = 256 * 2**20  # with less, a lesson may not get to its end
AGAIN = "then start its `dask worker` again"
POLL_S = 0.1


def dask_setup(worker):
    """Called by dask when the worker starts: say which version of the course it has, and offer itself to it."""
    course = sources.course()
    worker.labkit = {"course": course, "host": platform.node(), "refuses": None, "running": []}
    worker.metrics["labkit"] = lambda worker: worker.labkit
    for resources in (worker.state.total_resources, worker.state.available_resources):
        resources[resource(course)] = 1.0


def resource(course):
    """The dask resource of a version; each worker has one of it, and a lesson that measures takes all."""
    return f"labkit-{course}"


def run_task(job):
    """Run one task in a process of its own; returns its parcel.

    job      dict: course (digest), attempt (fields of an `Attempt`), notebook (its text), parameters, settings, alone
             (nothing may run beside it on this machine), deadline_s (after which its process counts as hung)
    returns  see `labkit.runner.parcels`
    errors   dask's `Reschedule` where this worker is not fit for it: the worker then takes no more tasks
    """
    from distributed import Reschedule, get_worker

    worker = get_worker()
    if worker.labkit["refuses"]:  # one that was waiting here when the worker had to give up
        raise Reschedule
    try:
        if (course := sources.course()) != job["course"]:
            raise _Unfit(f"its files changed to another version ({course}) while it ran; {AGAIN}")
        _need_room(worker.local_directory)
        folder = Path(tempfile.mkdtemp(prefix="labkit-", dir=worker.local_directory))
        try:
            return _Errand(worker, job, folder).parcel()
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    except _Unwanted:
        raise Reschedule from None
    except (_Unfit, OSError) as error:
        _take_no_more(worker, str(error) if isinstance(error, _Unfit) else f"{error}; see to that, {AGAIN}")
        raise Reschedule from error


class _Unfit(Exception):
    """This worker cannot run the task, another one may."""


class _Unwanted(Exception):
    """Nobody waits for the task any more, or the worker is closing."""


def _need_room(folder):
    free = shutil.disk_usage(folder).free
    if free < LEAST_FREE_BYTES:
        found = f"its disk has {free / 1e6:.0f} MB left in {folder}, less than {LEAST_FREE_BYTES / 1e6:.0f} MB"
        raise _Unfit(f"{found}: free some, or give `dask worker` another --local-directory, {AGAIN}")


def _take_no_more(worker, reason):
    """Leave this worker out from now on, and say why to every client.

    Only the scheduler is told that the resource is gone. The worker itself keeps it: what waits here for its turn can
    start, and is sent elsewhere.
    """
    from distributed.utils import sync

    worker.labkit["refuses"] = reason
    offered = {resource(worker.labkit["course"]): 0.0}
    sync(worker.loop, worker.scheduler.set_resources, resources=offered, worker=worker.contact_address)


class _Errand:
    """One task on its way: the process that runs it, watched from the worker's thread."""

    def __init__(self, worker, job, folder):
        self.worker, self.job, self.folder = worker, job, folder
        self.key, self.begun = job["attempt"]["run_key"], None

    def parcel(self):
        """Run the task when the machine is free for it."""
        (self.folder / "job.json").write_text(json.dumps(self.job), encoding="utf-8")
        with _machine(alone=self.job["alone"], go_on=self.still_wanted):
            self.worker.labkit["running"].append(self.key)
            try:
                reason = self.ended()
            finally:
                self.worker.labkit["running"].remove(self.key)
        if reason:
            seconds = round(time.monotonic() - self.begun, 3)
            return parcels.failed(self.job["attempt"], reason, seconds=seconds, host=platform.node())
        return self.packed()

    def still_wanted(self):
        task = self.worker.state.tasks.get(self.key)
        closing_down = self.worker.status.name in ("closing", "closed", "failed")
        if closing_down or task is None or task.state in ("cancelled", "released", "forgotten"):
            raise _Unwanted

    def ended(self):
        """Wait for the process to end; returns why there is no result, or None."""
        self.begun, log, deadline_s = time.monotonic(), self.folder / "log", self.job["deadline_s"]
        command = [sys.executable, "-P", "-m", "labkit.runner.remote", str(self.folder)]
        with log.open("wb") as file:
            pipes = {"stdin": subprocess.PIPE, "stdout": file, "stderr": file}
            process = subprocess.Popen(command, env=_environment(self.folder), start_new_session=True, **pipes)
        try:
            while process.poll() is None:
                self.still_wanted()
                if time.monotonic() - self.begun > deadline_s:
                    return f"the runner did not end within {deadline_s:g} s and was stopped"
                with suppress(subprocess.TimeoutExpired):
                    process.wait(POLL_S)
        finally:
            process.kill()
            process.wait()
            process.stdin.close()
            _wait_for_keeper(self.folder / "artifacts")
        if process.returncode < 0:
            return f"the runner was killed by signal {-process.returncode}"
        if process.returncode:
            _need_room(self.folder)
            said = last_line(log) or "it said nothing"
            raise _Unfit(f"the runner could not do its work: {said}; see to that, {AGAIN}")
        return None

    def packed(self):
        """The parcel of a task whose runner came to its end; a failure on a full disk is not the notebook's."""
        attempt = json.loads((self.folder / "attempt.json").read_text(encoding="utf-8"))
        if attempt["status"] != "passed":
            _need_room(self.folder)
        files = {"rows": (self.folder / "rows.sqlite").read_bytes()}
        if attempt["output"]:
            files["notebook"] = (self.folder / "artifacts" / attempt["output"]).read_bytes()
        return parcels.packed(attempt | {"host": platform.node()}, files)


@contextmanager
def _machine(*, alone, go_on):
    """Share this machine with other tasks, or have it alone, also where several workers run on it."""
    path = Path(tempfile.gettempdir()) / f"labkit-{getpass.getuser()}.lock"
    with path.open("a") as file:
        while True:
            go_on()
            with suppress(BlockingIOError):
                fcntl.flock(file, fcntl.LOCK_NB | (fcntl.LOCK_EX if alone else fcntl.LOCK_SH))
                break
            time.sleep(POLL_S)
        yield


def _environment(folder):
    """The process's environment: what dask's nanny set for its worker, such as one thread per process, is undone."""
    import dask

    names = {*dask.config.get("distributed.nanny.pre-spawn-environ", {}), "PYTHONHASHSEED"}
    before = {}
    with suppress(psutil.Error):
        before = psutil.Process().parent().environ()
    kept = {name: value for name, value in os.environ.items() if name not in names}
    kept |= {name: before[name] for name in names & before.keys()}
    return kept | {"LABKIT_ROOT": str(root().resolve()), "LABKIT_ARTIFACTS": str(folder / "artifacts")}


def _wait_for_keeper(folder):
    """Wait until nothing is left of a run: its keeper holds a lock as long."""
    with suppress(Timeout, OSError), FileLock(folder / ".keeper.lock", timeout=keeper.WAIT_FOR_KEEPER_S):
        pass


def main(folder):
    """Be the process of one task: `folder` has its job.json; leaves attempt.json and rows.sqlite there."""
    threading.Thread(target=_end_with_the_worker, daemon=True).start()
    job = json.loads((folder / "job.json").read_text(encoding="utf-8"))
    try:
        attempt = _run(job, folder)
        with closing(sqlite3.connect(artifacts() / "ledger.sqlite")) as stored:
            stored.execute("VACUUM INTO ?", [str(folder / "rows.sqlite")])
        (folder / "attempt.json").write_text(json.dumps(asdict(attempt)), encoding="utf-8")
    except (LabError, OSError) as error:
        error = explained(error) if isinstance(error, OSError) else error
        sys.exit(str(error).replace("\n ", ";"))


def _run(job, folder):
    """The `Attempt` at the job's task, on this machine."""
    from labkit.runner import process, tasks
    from labkit.runner.progress import Progress

    path = folder / f"{job['attempt']['notebook']}.ipynb"
    path.write_text(job["notebook"], encoding="utf-8")
    task = tasks.NotebookTask(*sources.find([path]), job["parameters"], job["attempt"]["seed"])
    with keeper.stoppable() as go_on, keeper.only_batch() as lock, keeper.private_places(lock) as private:
        jobs, settings = [(task, Attempt(**job["attempt"]))], tasks.BatchSettings(**job["settings"])
        progress = Progress(False, {tasks.label(task): 0.0}, together=1)
        (attempt,) = process.run(jobs, settings, private=private, progress=progress, go_on=go_on)
    return attempt


def _end_with_the_worker():
    """End at once when the worker is gone; the keeper then clears up."""
    os.read(0, 1)  # not through sys.stdin, whose lock would still be held at the end of a good run
    os._exit(1)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
