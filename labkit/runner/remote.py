"""The worker's side of a cluster: one notebook with one seed, run by the ordinary runner in a folder of its own."""

import json
import os
import platform
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from labkit.errors import LabError
from labkit.runner import sources
from labkit.runner.process import how_it_ended, last_line

POLL_S = 0.1
SET_BY_DASK = {"OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "PYTHONHASHSEED"}  # for its own process


def run_task(job):
    """Run one task of a batch in a process of its own; returns (name of this machine, bytes of its parcel).

    job      dict: course (its digest), name and text of the notebook, settings (of `run_batch`)
    returns  the parcel is what `labkit.ledger.merge.pack` writes
    errors   LabError where the course here is another one; RuntimeError where the runner could not do its work
    """
    from distributed import get_worker

    course, worker = sources.course(), get_worker()
    if course != job["course"]:
        raise LabError(
            "A worker has another version of the course.",
            expected=job["course"],
            found=f"{course} on {platform.node()}",
            fix="bring both to one commit; the same command then goes on",
        )
    with tempfile.TemporaryDirectory(dir=worker.local_directory, ignore_cleanup_errors=True) as name:
        folder = Path(name)
        (folder / f"{job['name']}.ipynb").write_text(job["text"], encoding="utf-8")
        (folder / "job.json").write_text(json.dumps(job))
        _run_apart(folder, lambda: _cancelled(worker))
        return platform.node(), (folder / "parcel.zip").read_bytes()


def _cancelled(worker):
    """Whether nobody waits for the task of this thread any more."""
    task = worker.state.tasks.get(worker.get_current_task())
    return task is None or task.state == "cancelled"


def _run_apart(folder, cancelled):
    """Run `main` as a process, and end it when the task was cancelled."""
    log = folder / "log"
    command = [sys.executable, "-P", "-m", "labkit.runner.remote", folder]
    environment = {name: value for name, value in os.environ.items() if name not in SET_BY_DASK}
    environment["LABKIT_ARTIFACTS"] = folder / "artifacts"
    with log.open("wb") as file:
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=file, stderr=file, env=environment, start_new_session=True
        )
    while process.poll() is None and not cancelled():
        time.sleep(POLL_S)
    process.kill()
    process.communicate()
    if process.returncode:
        raise RuntimeError(last_line(log) or f"the runner {how_it_ended(process)}")


def main(folder):
    """Be the process of one task: run what job.json says, and leave parcel.zip."""
    from labkit.ledger.merge import pack
    from labkit.runner import run_batch

    threading.Thread(target=_end_with_the_worker, daemon=True).start()
    job = json.loads((folder / "job.json").read_bytes())
    try:
        run_batch([folder / f"{job['name']}.ipynb"], show=False, **job["settings"])
    except LabError as error:
        sys.exit(str(error).replace("\n ", ";"))
    pack(folder / "parcel.zip")


def _end_with_the_worker():
    """End at once when the worker is gone: its end of the pipe closes. The keeper then clears up."""
    os.read(0, 1)  # not through sys.stdin, whose lock would still be held at the end of a good run
    os._exit(1)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
