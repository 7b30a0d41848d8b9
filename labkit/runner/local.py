"""Run tasks on this machine: each notebook by papermill, in a process of its own."""

import json
import os
import threading
import time
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from dataclasses import replace
from functools import partial

from labkit import device, ledger
from labkit.device.child import ChildEnded, run_in_child
from labkit.files import artifacts, root, write_text
from labkit.ledger.rows import Attempt
from labkit.runner.execute import Execution, execute
from labkit.runner.tasks import LIMITS, label

# papermill keeps the notebook's deadline; a process that hangs is killed so much later
HANG_LIMIT_S = 300
POLL_S = 0.3


def run(jobs, settings, *, progress, go_on):
    """Run tasks on this machine, and yield the `Attempt` of each task when it has ended.

    Tasks that measure times run after all others, one at a time.

    jobs      list of (`labkit.runner.tasks.NotebookTask`, `Attempt`)
    settings  a `labkit.runner.tasks.BatchSettings`
    progress  a `labkit.runner.progress.Progress`
    go_on     function called every `POLL_S` seconds; it raises after the user has stopped the batch
    """
    together = [job for job in jobs if not settings.runs_alone(job[0])]
    alone = [job for job in jobs if settings.runs_alone(job[0])]
    yield from _run_some(together, settings.at_a_time(), settings, progress=progress, go_on=go_on)
    yield from _run_some(alone, 1, settings, progress=progress, go_on=go_on)


def _run_some(jobs, at_a_time, settings, *, progress, go_on):
    """Run tasks, `at_a_time` in parallel, and yield the `Attempt` of each when it has ended.

    The other arguments are those of `run`.
    """
    stop = threading.Event()
    with ThreadPoolExecutor(at_a_time) as threads:
        try:
            running = {threads.submit(_run_one, *job, settings, progress, stop) for job in jobs}
            while running:
                go_on()
                ended, running = wait(running, timeout=POLL_S, return_when=FIRST_COMPLETED)
                for future in ended:
                    attempt = future.result()
                    progress.end(attempt)
                    ledger.add(attempt)
                    yield attempt
                progress.tick(_cells_in_words(jobs))
        finally:
            # A batch that is stopped ends its notebooks, too.
            stop.set()
            threads.shutdown(cancel_futures=True)


def _cells_in_words(jobs):
    """Return which cell each running task is at: {label of the task: "cell 3/20"}.

    jobs  list of (`NotebookTask`, `Attempt`), all of one batch
    """
    if not jobs:
        return {}
    batch_key = jobs[0][1].batch_key
    words = {}
    for attempt in ledger.find(Attempt, batch_key=batch_key, status="running"):
        words[label(attempt)] = f"cell {attempt.cells_done + 1}/{attempt.cells_total or '?'}"
    return words


def _run_one(task, attempt, settings, progress, stop):
    """Run one notebook, write the executed notebook to the artifacts, and return the `Attempt`.

    stop  `threading.Event`; once it is set, the notebook is ended, and nothing is written
    """
    # The ledger says "running" before the notebook starts: a kill leaves no unknown run.
    begun = time.monotonic()
    attempt = replace(attempt, started_utc=ledger.now(), cells_done=0)
    progress.begin(label(attempt))
    ledger.add(attempt)
    execution = _execute_in_child(task, attempt, settings, stop)
    if stop.is_set():  # `batch` gives a stopped attempt its status
        return attempt
    seconds = round(time.monotonic() - begun, 3)
    reason = execution.reason or _reason_of_exercises(task, settings)
    # A full disk must not hide why the notebook failed.
    output = None
    try:
        path = _publish(execution.page, artifacts() / attempt.output, reason)
        output = path and path.relative_to(artifacts()).as_posix()
    except OSError as error:
        refused = f"the notebook could not be published: {error}"
        reason = f"{reason}; {refused}" if reason else refused
    return replace(
        execution.attempt,
        status="failed" if reason else "passed",
        reason=reason,
        seconds=seconds,
        output=output,
        finished_utc=ledger.now(),
    )


def _execute_in_child(task, attempt, settings, stop):
    """Execute a notebook in a process of its own, and return its `Execution`.

    If the process crashes or hangs, the `Execution` has this as its reason.

    stop  `threading.Event`; once it is set, the process is ended
    """
    function = partial(
        execute,
        task,
        attempt,
        solutions=settings.solutions is True,
        cell_deadline_s=settings.cell_deadline_s,
        environment=_environment(task, settings),
    )
    limit_s = LIMITS[settings.profile].notebook_s + HANG_LIMIT_S
    try:
        return run_in_child(function, seconds=limit_s, by_the_clock=True, stopped=stop.is_set)
    except ChildEnded as error:
        # the ledger's row has the number of cells that were done
        [stored] = ledger.find(Attempt, run_key=attempt.run_key)
        reason = f"the worker did not return ({error.found}), in code cell {stored.cells_done + 1}"
        return Execution(reason, None, stored)


def _environment(task, settings):
    """Return {variable: value} for the kernel of a notebook: labkit's folders, and OMP_NUM_THREADS.

    OMP_NUM_THREADS is set only where several notebooks share the cores, or where a quota lets this
    process use only part of the cores that it sees. A value that the user has set stays.
    """
    environment = {
        "LABKIT_ROOT": str(root().resolve()),
        "LABKIT_ARTIFACTS": str(artifacts().resolve()),
    }
    at_a_time = settings.at_a_time()
    shares_the_cores = at_a_time > 1 and not settings.runs_alone(task)
    # Libraries start a thread for each core that they see, and see neither other notebooks nor a
    # quota.
    has_quota = device.usable_cores() < device.allowed_cores()
    if (shares_the_cores or has_quota) and "OMP_NUM_THREADS" not in os.environ:
        together = at_a_time if shares_the_cores else 1
        environment["OMP_NUM_THREADS"] = str(max(1, device.usable_cores() // together))
    return environment


def _reason_of_exercises(task, settings):
    """Return why the exercises of a notebook do not pass, in sentences; None where they pass.

    They are checked only with the setting `strict`, or with `solutions="both"`. Without either,
    None is returned.
    """
    if not settings.strict and settings.solutions != "both":
        return None
    from labkit.classroom import grading  # here: it takes a second to import

    return grading.flaw(task.source.path, solved=bool(settings.solutions))


def _publish(page, target, reason):
    """Write an executed notebook to the artifacts. Returns its path, or None where there is none.

    A notebook whose run does not count is written under another name, with the reason at its top.

    page    the notebook as JSON, or None
    target  path for a notebook that passed
    reason  why the run does not count; None where it passed
    """
    failed = target.with_suffix(".failed.ipynb")
    target.parent.mkdir(parents=True, exist_ok=True)
    if reason is None:
        write_text(target, page)
        failed.unlink(missing_ok=True)
        return target
    if page is None:
        failed.unlink(missing_ok=True)
        return None
    notebook = json.loads(page)
    note = {
        "cell_type": "markdown",
        "id": "why-it-failed",
        "metadata": {"tags": ["papermill-error-cell-tag"]},
        "source": f"**This run does not count:** {reason}",
    }
    notebook["cells"].insert(0, note)
    write_text(failed, json.dumps(notebook))
    return failed
