"""Runs the notebooks of the workbook as one batch that can be killed and taken up again.

Each start of a notebook is an `Attempt` row with a run key of its own, `<batch>/<notebook>/<number>`; the notebook
finds it in `LABKIT_RUN_KEY`. A batch is known by its settings and by the digest of the notebooks and of labkit.
"""

import json
import uuid
from contextlib import closing
from dataclasses import dataclass, replace

from labkit import ledger
from labkit.errors import require_known
from labkit.ledger.rows import Attempt, Batch, Completion
from labkit.runner import keeper, local, outcome, sources, tasks
from labkit.runner.local import PROFILES
from labkit.runner.progress import Progress, expected_seconds
from labkit.runner.settings import Settings  # noqa: F401 (`run` takes them)
from labkit.runner.tasks import label


@dataclass(frozen=True)
class Result:
    """What became of a batch: one `Attempt` row per task, in order; `kept` names those that did not run again."""

    batch_key: str
    attempts: tuple[Attempt, ...]
    kept: tuple[str, ...]

    @property
    def ok(self):
        """Whether every task passed."""
        return all(attempt.status == "passed" for attempt in self.attempts)


def run(notebooks, settings, *, show=None):
    """The work of `labkit.runner.run_batch`; `settings` is a `Settings`."""
    require_known(settings.profile, PROFILES, "profile")
    wanted = tasks.listed(sources.find(notebooks), settings)
    with keeper.stoppable() as go_on, keeper.only_batch() as lock:
        _end_stale()
        batch, kept = _begin(wanted, settings)
        todo = [task for task in wanted if label(task) not in kept]
        expected = expected_seconds(todo, settings.profile, PROFILES[settings.profile][-1])
        progress = Progress(show, expected, settings.at_a_time())
        try:
            with keeper.private_places(lock) as private, progress.moving:
                for name in kept:
                    progress.say(f"{name}  passed before, not run again")
                jobs = [(task, tasks.attempt(task, batch.batch_key, settings)) for task in todo]
                around = {"private": private, "progress": progress, "go_on": go_on}
                with closing(_runner(settings).run(jobs, settings, **around)) as ended:
                    ready = kept | {label(attempt): attempt for attempt in ended}
                attempts = tuple(ready[label(task)] for task in wanted)
                result = Result(batch.batch_key, attempts, tuple(kept))
                ledger.add(replace(batch, status="passed" if result.ok else "failed"))
                progress.finish(attempts)
        finally:
            _end_stale()
    return result


def _runner(settings):
    """The module whose `run` does the work."""
    if not settings.cluster:
        return local
    from labkit.runner import cluster  # here: dask takes a second to import

    return cluster


def _end_stale():
    """Say of attempts that were running when their batch was stopped or killed what became of them.

    The lock is ours, so none is running. One whose output was published has passed.
    """
    for stale in ledger.find(Attempt, status="running"):
        if not outcome.is_finished(stale):
            ledger.add(replace(stale, status="interrupted", reason="the batch was stopped", output=None))
            continue
        record = ledger.find(Completion, run_key=stale.run_key)[0]
        cells = {"cells_done": record.cell_count, "cells_total": record.cell_count}
        done = {"seconds": record.seconds, "finished_utc": record.finished_utc}
        ledger.add(replace(stale, status="passed", **cells, **done))


def _begin(wanted, settings):
    """The batch to run, new or continued, and {label: Attempt} of what need not run again.

    Where it runs is no part of what a batch is known by: one that a cluster began may be ended here, and the reverse.
    """
    found = list({task.notebook: task.source for task in wanted}.values())
    chosen = {"profile": settings.profile, "solutions": settings.solutions, "strict": settings.strict}
    known = {"tasks": [(label(task), task.parameters) for task in wanted], "digest": sources.digest(found)}
    text = json.dumps({**chosen, **known}, sort_keys=True)
    earlier = sorted(ledger.find(Batch, settings=text), key=lambda row: row.started_utc)
    if earlier and earlier[-1].status != "passed" and not settings.fresh:
        passed = ledger.find(Attempt, batch_key=earlier[-1].batch_key, status="passed")
        return earlier[-1], {label(row): row for row in passed if outcome.is_finished(row)}
    started = ledger.now()
    batch = Batch(batch_key=f"{started[:19]}-{uuid.uuid4().hex[:6]}", settings=text, started_utc=started)
    ledger.add(batch)
    return batch, {}
