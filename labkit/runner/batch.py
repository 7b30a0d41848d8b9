"""Runs the notebooks of the workbook as one batch that can be killed and taken up again.

Each start of a notebook is an `Attempt` row with a run key of its own, `<batch>/<notebook>/<number>`; the notebook
finds it in `LABKIT_RUN_KEY`. A batch is known by its settings and by the digest of the notebooks and of labkit.
"""

import os
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from labkit import device, ledger
from labkit.files import artifacts, root
from labkit.ledger import rows
from labkit.runner import history, keeper, places, progress, sources, verdict
from labkit.runner.lock import batch_lock
from labkit.runner.pool import Job, run_jobs


@dataclass(frozen=True)
class Result:
    """What became of a batch: one `Attempt` row a notebook, in order; `kept` names those that did not run again."""

    batch_key: str
    attempts: tuple[rows.Attempt, ...]
    kept: tuple[str, ...]

    @property
    def ok(self):
        """Whether every notebook passed."""
        return all(attempt.status == "passed" for attempt in self.attempts)


def run(notebooks, settings, *, show=None):
    """The work of `labkit.runner.run_batch`; `settings` is a `Settings`."""
    settings.check()
    found = sources.find(notebooks)
    wanted = {"profile": settings.profile, **settings.parameters}
    parameters = {source.name: sources.typed(source, wanted) for source in found if not source.problem}
    with batch_lock(artifacts()) as lock, places.stop_on_terminate():
        places.clean_up()
        batch, kept = history.begin(found, settings, parameters)
        with places.private_places(lock) as private, progress.choose(show) as display:
            run = BatchRun(batch, settings, private, display)
            attempts = run.all(found, parameters, kept)
            display.finish(attempts)
    return Result(batch.batch_key, tuple(attempts), tuple(kept))


class BatchRun:
    """The running of one batch.

    private  (runtime folder, work folder, token): see `places.private_places`
    display  one of `labkit.runner.progress`
    """

    def __init__(self, batch, settings, private, display):
        self.batch, self.settings, self.display = batch, settings, display
        self.runtime, self.work, self.token = private
        self.open = {}  # {run key: Attempt} of what waits or runs

    def all(self, found, parameters, kept):
        """Run what is not kept; returns the `Attempt` rows in the order of `found`."""
        ended = dict(kept)
        for attempt in kept.values():
            self.display.keep(attempt)
        ended.update((source.name, self.refuse(source)) for source in found if source.problem)
        jobs = [self.job(source, parameters[source.name]) for source in found if source.name not in ended]
        try:
            with closing(run_jobs(jobs, side_by_side=self.settings.side_by_side(), progress=self.note)) as outcomes:
                for job, outcome in outcomes:
                    attempt = self.settle(job, outcome)
                    ended[attempt.notebook] = attempt
        finally:
            for attempt in self.open.values():
                if attempt.status == "running":
                    stopped = {"status": "interrupted", "reason": "the batch was stopped"}
                    ledger.add(replace(attempt, **stopped, finished_utc=ledger.now()))
        attempts = [ended[source.name] for source in found]
        passed = all(attempt.status == "passed" for attempt in attempts)
        ledger.add(replace(self.batch, status="passed" if passed else "failed"))
        return attempts

    def new_attempt(self, name, **fields):
        number = 1 + len(ledger.find(rows.Attempt, batch_key=self.batch.batch_key, notebook=name))
        key = f"{self.batch.batch_key}/{name}/{number}"
        about = {"batch_key": self.batch.batch_key, "notebook": name, "profile": self.settings.profile}
        return rows.Attempt(run_key=key, **about, started_utc=ledger.now(), **fields)

    def refuse(self, source):
        """Record a notebook that cannot be run at all."""
        attempt = self.new_attempt(
            source.name, status="failed", reason=source.problem, seconds=0.0, finished_utc=ledger.now()
        )
        ledger.add(attempt)
        self.display.end(attempt)
        return attempt

    def job(self, source, parameters):
        attempt = self.new_attempt(source.name, status="waiting")
        self.open[attempt.run_key] = attempt
        path, folder = source.path.resolve(), root().resolve()
        cell_s, notebook_s = self.settings.deadlines()
        return Job(
            source=str(path),
            work=str(self.work / f"{source.name}.ipynb"),
            label=path.relative_to(folder).as_posix() if path.is_relative_to(folder) else path.name,
            run_key=attempt.run_key,
            parameters=parameters,
            solutions=self.settings.solutions,
            sockets=places.socket_prefix(self.runtime, number=len(self.open)),
            alone=source.measures,
            environment=self.environment(attempt, alone=source.measures),
            cell_deadline_s=cell_s,
            notebook_deadline_s=notebook_s,
        )

    def environment(self, attempt, *, alone):
        """The worker's environment, which its kernel inherits."""
        own = {
            keeper.RUN_MARK: attempt.run_key,
            keeper.BATCH_MARK: self.token,
            "LABKIT_BATCH_KEY": self.batch.batch_key,
            "LABKIT_HEADLESS": "1",
            "LABKIT_ROOT": str(root().resolve()),
            "LABKIT_ARTIFACTS": str(artifacts().resolve()),
            "JUPYTER_PREFER_ENV_PATH": "1",  # this environment's kernel, not one of the same name elsewhere
            "JUPYTER_RUNTIME_DIR": str(self.runtime),
            "IPYTHONDIR": str(self.runtime / f"ipython-{attempt.notebook}"),
        }
        inherited = {name: value for name, value in os.environ.items() if name != "JUPYTER_PATH"}
        if self.settings.strict:
            own["LABKIT_STRICT"] = "1"
        if not alone and self.settings.side_by_side() > 1:  # share the cores instead of fighting for them
            share = max(1, device.usable_cores() // self.settings.side_by_side())
            own["OMP_NUM_THREADS"] = os.environ.get("OMP_NUM_THREADS", str(share))
        return {**inherited, **own}

    def note(self, job, started, total):
        """A job began, moved, or (None) time passed."""
        if job is None:
            return self.display.cell(None, 0, 0)
        attempt = self.open[job.run_key]
        if attempt.status == "waiting":
            self.open[job.run_key] = attempt = replace(attempt, status="running", started_utc=ledger.now())
            ledger.add(attempt)
            self.display.begin(attempt.notebook)
        return self.display.cell(attempt.notebook, started, total)

    def settle(self, job, outcome):
        """Judge a run, publish its output, record it."""
        attempt, folder = self.open.pop(job.run_key), artifacts() / self.settings.folder()
        folder.mkdir(parents=True, exist_ok=True)
        reason = verdict.flaw(job.run_key, outcome)
        if reason is None:
            path = verdict.publish_passed(Path(job.work), folder, attempt.notebook)
        else:
            path = verdict.publish_failed(Path(job.work), folder, attempt.notebook, reason=reason)
        attempt = replace(
            attempt,
            status="failed" if reason else "passed",
            reason=reason,
            seconds=round(outcome.seconds, 3),
            cells_done=outcome.cells_done,
            cells_total=outcome.cells_total,
            output=path.relative_to(artifacts()).as_posix() if path else None,
            finished_utc=ledger.now(),
        )
        ledger.add(attempt)
        self.display.end(attempt)
        return attempt
