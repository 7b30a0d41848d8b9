"""Run one notebook with one seed on a worker of a cluster, in a folder of its own."""

import os
import platform
from functools import partial

from labkit.device.child import ChildEnded, own_folder, run_in_child
from labkit.errors import LabError
from labkit.runner import sources
from labkit.runner.tasks import LIMITS

START_AND_PACK_S = 1200  # beside the notebook itself, which has its own deadline
# variables that dask sets for the worker, and that the notebook must not inherit
SET_BY_DASK = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "PYTHONHASHSEED")


def run_task(course: str, name: str, text: str, settings: dict) -> tuple[str, bytes]:
    """Run one task of a batch on a worker, in a process of its own. Dask calls this.

    course    digest of the course on the machine that sent the task
    name      name of the notebook, without .ipynb
    text      text of the notebook's file
    settings  settings of `labkit.runner.run_batch` for this one task, {name: value}
    returns   (name of this machine, parcel). The parcel is the bytes of a zip with the rows and the
              executed notebook
    errors    LabError where the course on this machine has another digest; RuntimeError where the
              runner itself failed
    """
    from distributed import get_worker

    course_here = sources.course()
    if course_here != course:
        raise LabError(
            "A worker has another version of the course.",
            expected=course,
            found=f"{course_here} on {platform.node()}",
            fix="bring both to one commit; the same command then goes on",
        )
    worker = get_worker()
    key = worker.get_current_task()

    def is_cancelled():
        task = worker.state.tasks.get(key)
        return task is None or task.state == "cancelled"

    limit_s = LIMITS[settings["profile"]].notebook_s + START_AND_PACK_S
    try:
        parcel = run_in_child(
            partial(run_and_pack, name, text, settings),
            seconds=limit_s,
            by_the_clock=True,
            stopped=is_cancelled,
        )
    except LabError as error:  # of this task: a LabError would end the whole batch
        subject = "the runner" if isinstance(error, ChildEnded) else error.what
        raise RuntimeError(f"{subject}: {error.found}") from error
    return platform.node(), parcel


def run_and_pack(name: str, text: str, settings: dict) -> bytes:
    """Run one notebook with `run_batch`, and return the bytes of its parcel.

    Call this in a process of its own, because it changes the environment of the process. The
    artifacts go into the folder of the process.

    name, text, settings  as in `run_task`
    """
    from labkit.ledger.merge import pack
    from labkit.runner import run_batch

    for variable in SET_BY_DASK:
        os.environ.pop(variable, None)
    os.environ["LABKIT_ARTIFACTS"] = str(own_folder() / "artifacts")
    notebook = own_folder() / f"{name}.ipynb"
    notebook.write_text(text, encoding="utf-8")
    run_batch([notebook], show=False, **settings)
    parcel = own_folder() / "parcel.zip"
    pack(parcel)
    return parcel.read_bytes()
