"""Runs notebooks as one batch that can be killed and continued.

Each start of a notebook is an `Attempt` row with a run key of its own, `<batch>/<notebook>/<number>`; the notebook
finds it in `LABKIT_RUN_KEY`. A batch is known by its settings and by the digest of the notebooks and of labkit.
"""

import json
import uuid
from contextlib import closing, suppress
from dataclasses import dataclass, replace

from labkit import ledger
from labkit.errors import require_known
from labkit.files import artifacts
from labkit.ledger.rows import Attempt, Batch, Completion
from labkit.runner import cluster, keeper, process, sources, tasks
from labkit.runner.progress import Progress, expected_seconds
from labkit.runner.tasks import PROFILES, label


@dataclass(frozen=True)
class Result:
    """What became of a batch: one `Attempt` row per task, in order."""

    attempts: list[Attempt]

    @property
    def ok(self):
        """Whether every task passed."""
        return all(attempt.status == "passed" for attempt in self.attempts)


def run(notebooks, settings, *, show):
    """The work of `labkit.runner.run_batch`; `settings` is a `BatchSettings`."""
    require_known(settings.profile, PROFILES, "profile")
    wanted = tasks.listed(sources.find(notebooks), settings)
    with keeper.stoppable() as go_on, keeper.only_batch() as lock:
        _end_stale()
        batch, passed_before = _begin(wanted, settings)
        todo = [task for task in wanted if label(task) not in passed_before]
        jobs = [(task, tasks.attempt(task, batch.batch_key, settings)) for task in todo]
        progress = Progress(show, expected_seconds(todo, settings.profile), settings.at_a_time())
        try:
            with keeper.private_places(lock) as private, progress.moving:
                for name in passed_before:
                    progress.say(f"{name}  passed before, not run again")
                run_jobs = cluster.run if settings.cluster else process.run
                ended = run_jobs(jobs, settings, private=private, progress=progress, go_on=go_on)
                with closing(ended):
                    done = passed_before | {label(attempt): attempt for attempt in ended}
        finally:
            _end_stale()
        result = Result([done[label(task)] for task in wanted])
        ledger.add(replace(batch, status="passed" if result.ok else "failed"))
        progress.finish(result.attempts)
    return result


def _is_finished(attempt):
    """Whether an earlier attempt passed and its output is still there: it need not run again.

    The output is published only after the run was found to count, and it carries the key of its run.
    """
    with suppress(OSError, ValueError, KeyError, TypeError):
        page = json.loads((artifacts() / attempt.output).read_bytes())
        return page["metadata"]["labkit"]["run_key"] == attempt.run_key
    return False


def _end_stale():
    """Settle attempts that were running when their batch was stopped or killed; this batch has the lock, none runs.

    An attempt whose output was published has passed.
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
            ledger.add(replace(stale, status="interrupted", reason="the batch was stopped", output=None))


def _begin(wanted, settings):
    """The batch to run, new or continued, and {label: Attempt} of the tasks that need not run again.

    A batch that began on a cluster may be continued on this machine, and the reverse.
    """
    known = {
        "profile": settings.profile,
        "solutions": settings.solutions,
        "strict": settings.strict,
        "tasks": [(label(task), task.parameters) for task in wanted],
        "digest": sources.digest(dict.fromkeys(task.source.path for task in wanted)),
    }
    text = json.dumps(known, sort_keys=True)
    earlier = sorted(ledger.find(Batch, settings=text), key=lambda row: row.started_utc)
    if earlier and earlier[-1].status != "passed" and not settings.fresh:
        passed = ledger.find(Attempt, batch_key=earlier[-1].batch_key, status="passed")
        return earlier[-1], {label(row): row for row in passed if _is_finished(row)}
    started = ledger.now()
    batch = Batch(batch_key=f"{started[:19]}-{uuid.uuid4().hex[:6]}", settings=text, started_utc=started)
    ledger.add(batch)
    return batch, {}
