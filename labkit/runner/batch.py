"""Run notebooks as one batch that can be killed and continued.

Each start of a task is an attempt, a row `Attempt` of the ledger. It has a run key of its own,
`<batch>/<notebook>/<number>`, which the notebook reads from the variable `LABKIT_RUN_KEY`. A batch
is recognised by its settings, and by a digest of its notebooks and of labkit: only a batch with the
same settings and digest is continued.
"""

import json
import uuid
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace

from filelock import FileLock, Timeout

from labkit import ledger
from labkit.errors import LabError, require_known
from labkit.files import artifacts
from labkit.ledger.rows import Attempt, Batch, Completion
from labkit.runner import local, sources, tasks
from labkit.runner.progress import Progress, expected_seconds
from labkit.runner.stop import stoppable
from labkit.runner.tasks import LIMITS, label


@dataclass(frozen=True)
class Result:
    """The result of a batch.

    attempts  one `Attempt` row per task, in order
    """

    attempts: list[Attempt]

    @property
    def ok(self):
        """Return whether every task passed."""
        return all(attempt.status == "passed" for attempt in self.attempts)


def run(notebooks, settings, *, show):
    """Run notebooks as a batch, or continue one. Returns a `Result`.

    notebooks  names and paths, or None for all of the course, as in `labkit.runner.run_batch`
    settings   a `BatchSettings`
    show       whether to print progress
    Raises     the errors of `labkit.runner.run_batch`
    """
    require_known(settings.profile, LIMITS, "profile")
    all_tasks = tasks.listed(sources.find(notebooks), settings)
    with stoppable() as go_on, _only_batch():
        _settle_stale_attempts()
        # What has passed in an earlier start of this batch is not run again.
        batch, attempts = _begin(all_tasks, settings)
        todo = [task for task in all_tasks if label(task) not in attempts]
        progress = Progress(show, expected_seconds(todo, settings.profile), settings.at_a_time())
        for name in attempts:
            progress.say(f"{name}  passed before, not run again")
        try:
            for attempt in _run(todo, batch, settings, progress=progress, go_on=go_on):
                attempts[label(attempt)] = attempt
        finally:
            _settle_stale_attempts()
        result = Result([attempts[label(task)] for task in all_tasks])
        ledger.add(replace(batch, status="passed" if result.ok else "failed"))
        progress.finish(result.attempts)
    return result


def _run(todo, batch, settings, *, progress, go_on):
    """Run tasks, here or on a cluster, and yield the `Attempt` of each task when it has ended.

    todo      list of `NotebookTask`
    batch     the `Batch` row
    settings  a `BatchSettings`
    progress  a `Progress`
    go_on     function that does nothing, but raises after the user has stopped the batch
    """
    run_jobs = local.run
    if settings.cluster:
        from labkit.runner import cluster  # here: only a cluster needs it

        run_jobs = cluster.run
    jobs = [(task, tasks.attempt(task, batch.batch_key, settings)) for task in todo]
    with (
        progress.moving,
        closing(run_jobs(jobs, settings, progress=progress, go_on=go_on)) as ended,
    ):
        yield from ended


@contextmanager
def _only_batch():
    """Hold the lock of the artifacts folder for the `with` block.

    Temporary files of a batch that was killed are removed first.

    Raises  LabError where another batch holds the lock
    """
    try:
        with FileLock(artifacts() / ".batch.lock", timeout=0):
            for unfinished in (artifacts() / "executed").glob("*/.*.tmp"):
                unfinished.unlink(missing_ok=True)
            yield
    except Timeout:
        raise LabError(
            "Another batch of notebooks is running on these artifacts.",
            found=".batch.lock",
            fix="wait until it ends, or set LABKIT_ARTIFACTS to another folder",
        ) from None


def _is_finished(attempt):
    """Return whether the executed notebook of an attempt was written to the artifacts.

    Its file must contain the attempt's run key, because a later attempt writes to the same path. An
    attempt with such a file has passed: only the notebook of a run that counts is written there.
    """
    with suppress(OSError, ValueError, KeyError, TypeError):
        page = json.loads((artifacts() / attempt.output).read_bytes())
        return page["metadata"]["labkit"]["run_key"] == attempt.run_key
    return False


def _settle_stale_attempts():
    """Correct the status of each attempt that the ledger still calls "running".

    No attempt is running now, because only the batch that holds the lock runs any. So the batch of
    such an attempt was stopped or killed. The status becomes "passed" if the executed notebook was
    written, else "interrupted".
    """
    for stale in ledger.find(Attempt, status="running"):
        if _is_finished(stale):
            record = ledger.find(Completion, run_key=stale.run_key)[0]
            ledger.add(
                replace(
                    stale,
                    status="passed",
                    cells_done=record.cell_count,
                    cells_total=record.cell_count,
                    seconds=record.seconds,
                    finished_utc=record.finished_utc,
                )
            )
        else:
            ledger.add(
                replace(stale, status="interrupted", reason="the batch was stopped", output=None)
            )


def _begin(all_tasks, settings):
    """Find the batch to continue, or begin a new one. Returns (`Batch`, {label: `Attempt`}).

    The dictionary has the tasks of this batch that have passed already. A batch that began on a
    cluster may be continued on this machine, and the reverse.

    all_tasks  list of `NotebookTask`
    settings   a `BatchSettings`
    """
    identity = {
        "profile": settings.profile,
        "solutions": settings.solutions,
        "strict": settings.strict,
        "tasks": [(label(task), task.parameters) for task in all_tasks],
        "digest": sources.digest(dict.fromkeys(task.source.path for task in all_tasks)),
    }
    identity_text = json.dumps(identity, sort_keys=True)
    earlier = sorted(ledger.find(Batch, settings=identity_text), key=lambda row: row.started_utc)
    if earlier and earlier[-1].status != "passed" and not settings.fresh:
        passed = ledger.find(Attempt, batch_key=earlier[-1].batch_key, status="passed")
        return earlier[-1], {label(attempt): attempt for attempt in passed if _is_finished(attempt)}
    started = ledger.now()
    batch = Batch(
        batch_key=f"{started[:19]}-{uuid.uuid4().hex[:6]}",
        settings=identity_text,
        started_utc=started,
    )
    ledger.add(batch)
    return batch, {}
