"""Runs the notebooks of the workbook as one batch that can be killed and taken up again.

Each start of a notebook is an `Attempt` row with a run key of its own, `<batch>/<notebook>/<number>`; the notebook
finds it in `LABKIT_RUN_KEY`. A batch is known by its settings and by the digest of the notebooks and of labkit.
"""

import json
import os
import uuid
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path

from labkit import device, ledger
from labkit.errors import LabError
from labkit.files import artifacts, root
from labkit.ledger.rows import Attempt, Batch, Completion
from labkit.lesson import grading
from labkit.runner import keeper, outcome, process, sources
from labkit.runner.progress import Progress, expected_seconds

# Most seconds for one cell and for one whole notebook, and seconds that a notebook takes as a rule.
PROFILES = {"quick": (300, 900, 45), "lab": (3600, 4 * 3600, 300), "paper": (24 * 3600, 72 * 3600, 3600)}


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How to run a batch.

    profile          "quick", "lab" or "paper": passed to each notebook as its parameter `profile`
    parameters       further parameters, as the types of the notebook's defaults
    fresh            start over even if an earlier batch can be continued
    solutions        fill the reference answers into the cells tagged `exercise`; "both": run each as it is given, then
                     solved, and keep the first verdicts under the run key `<run key>/as-given`
    strict           an unsolved or wrong exercise is an error: in the kernel (LABKIT_STRICT=1), and afterwards by
                     `labkit.lesson.grading`, in a fresh process
    together         so many notebooks at a time, measuring ones too: what they measure then means nothing. None: at
                     most two, and those that measure alone
    cell_deadline_s  most seconds for one cell; None means the profile's
    """

    profile: str = "quick"
    parameters: Mapping = field(default_factory=dict)
    fresh: bool = False
    solutions: bool | str = False
    strict: bool = False
    together: int | None = None
    cell_deadline_s: float | None = None

    def at_a_time(self):
        return self.together or min(2, device.usable_cores())


@dataclass(frozen=True)
class Result:
    """What became of a batch: one `Attempt` row a notebook, in order; `kept` names those that did not run again."""

    batch_key: str
    attempts: tuple[Attempt, ...]
    kept: tuple[str, ...]

    @property
    def ok(self):
        """Whether every notebook passed."""
        return all(attempt.status == "passed" for attempt in self.attempts)


def run(notebooks, settings, *, show=None):
    """The work of `labkit.runner.run_batch`; `settings` is a `Settings`."""
    if settings.profile not in PROFILES:
        fix = "labkit run --profile quick"
        raise LabError(f"There is no profile {settings.profile!r}.", expected=", ".join(PROFILES), fix=fix)
    found = sources.find(notebooks)
    wanted = {"profile": settings.profile, **settings.parameters}
    parameters = {source.name: sources.typed(source, wanted) for source in found}
    with keeper.stoppable() as go_on, keeper.only_batch() as lock:
        _end_stale()
        batch, kept = _begin(found, settings, parameters)
        names = [source.name for source in found if source.name not in kept]
        expected = expected_seconds(names, settings.profile, PROFILES[settings.profile][-1])
        progress = Progress(show, expected, settings.at_a_time())
        try:
            with keeper.private_places(lock) as private, progress.moving:
                for name in kept:
                    progress.say(f"{name}  passed before, not run again")
                running = _Running(batch, settings, private, progress, go_on)
                new = running.all([source for source in found if source.name in names], parameters)
                attempts = tuple((kept | new)[source.name] for source in found)
                result = Result(batch.batch_key, attempts, tuple(kept))
                ledger.add(replace(batch, status="passed" if result.ok else "failed"))
                progress.finish(attempts)
        finally:
            _end_stale()
    return result


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


def _begin(found, settings, parameters):
    """The batch to run, new or continued, and {name: Attempt} of what need not run again."""
    chosen = {"profile": settings.profile, "solutions": settings.solutions, "strict": settings.strict}
    known = {"notebooks": [source.name for source in found], "digest": sources.digest(found)}
    text = json.dumps({**chosen, "parameters": parameters, **known}, sort_keys=True)
    earlier = sorted(ledger.find(Batch, settings=text), key=lambda row: row.started_utc)
    if earlier and earlier[-1].status != "passed" and not settings.fresh:
        passed = ledger.find(Attempt, batch_key=earlier[-1].batch_key, status="passed")
        return earlier[-1], {row.notebook: row for row in passed if outcome.is_finished(row)}
    started = ledger.now()
    batch = Batch(batch_key=f"{started[:19]}-{uuid.uuid4().hex[:6]}", settings=text, started_utc=started)
    ledger.add(batch)
    return batch, {}


class _Running:
    """The running of one batch.

    private   (runtime folder, work folder, token): see `keeper.private_places`
    progress  a `Progress`
    go_on     called now and then; raises when the batch was told to stop
    """

    def __init__(self, batch, settings, private, progress, go_on):
        self.batch, self.settings, self.progress, self.go_on = batch, settings, progress, go_on
        self.runtime, self.work, self.token = private
        self.rows = outcome.Rows()

    def all(self, found, parameters):
        """Run the notebooks; returns {name: Attempt}."""
        waiting = [self._process(source, parameters[source.name]) for source in found]
        with closing(process.run(waiting, together=self.settings.at_a_time(), note=self._note)) as ended:
            attempts = [self._settle(one) for one in ended]
        return {attempt.notebook: attempt for attempt in attempts}

    def _process(self, source, parameters):
        """What is to run a notebook."""
        profile, name = self.settings.profile, source.name
        number = 1 + len(ledger.find(Attempt, batch_key=self.batch.batch_key, notebook=name))
        attempt = Attempt(
            run_key=f"{self.batch.batch_key}/{name}/{number}",
            batch_key=self.batch.batch_key,
            notebook=name,
            profile=profile,
            started_utc=ledger.now(),
            status="running",
            output=f"executed/{profile}{'-solved' if self.settings.solutions else ''}/{name}.ipynb",
        )
        alone = source.measures and not self.settings.together
        cell_s, notebook_s, _ = PROFILES[profile]
        told = {
            "source": str(source.path.resolve()),
            "work": str(self.work / f"{name}.ipynb"),
            "run_key": attempt.run_key,
            "parameters": parameters,
            "solutions": self.settings.solutions,
            "kernel": self._kernel(),
            "cell_s": self.settings.cell_deadline_s or cell_s,
            "notebook_s": notebook_s,
        }
        return process.Process(attempt, told, self._environment(attempt, alone=alone), alone=alone)

    def _kernel(self):
        """Traits of a `KernelManager`: a connection file that the keeper removes, and sockets where there are such."""
        prefix = str(self.runtime / uuid.uuid4().hex[:8])
        sockets = {"transport": "ipc", "ip": prefix} if os.name == "posix" else {}
        return {"connection_file": f"{prefix}.json", **sockets}

    def _environment(self, attempt, *, alone):
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
        if not alone and self.settings.at_a_time() > 1:  # share the cores instead of fighting for them
            share = max(1, device.usable_cores() // self.settings.at_a_time())
            own["OMP_NUM_THREADS"] = os.environ.get("OMP_NUM_THREADS", str(share))
        return {**inherited, **own}

    def _note(self, one):
        """A process started, moved, or (None) time passed."""
        self.go_on()
        if one is None:
            return self.progress.tick()
        if one.attempt.notebook not in self.progress.begun:
            one.attempt = replace(one.attempt, started_utc=ledger.now())
            ledger.add(one.attempt)
            self.progress.begin(one.attempt.notebook)
        return self.progress.tick(one.attempt.notebook, f"cell {one.state['started']}/{one.state['total'] or '?'}")

    def _settle(self, ended):
        """Judge a run, publish its output, record it."""
        target, work = artifacts() / ended.attempt.output, Path(ended.told["work"])
        lost = self.rows.lost()
        reason = outcome.flaw(ended) or lost
        if reason is None and self.settings.strict:
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
