"""Runs the tasks of a batch on the workers of a dask cluster: `labkit run --cluster ADDRESS`.

Only this process writes into the ledger: what a worker sends back is taken over whole, in one transaction, and once.
Each task is published on the scheduler under its run key. When this process is killed, the tasks that were sent go on,
and the same command finds them there. `labkit.runner.remote` is the worker's side.
"""

import asyncio
import logging
import time
from collections import deque
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace

from labkit import device, ledger
from labkit.errors import LabError, LedgerError
from labkit.ledger.rows import Batch
from labkit.runner import parcels, process, remote, sources
from labkit.runner.tasks import PROFILES, label

CONNECT_S = 10  # also how long a scheduler that went away is waited for
NO_WORKER_S = 600
ALL_REFUSED_S = 30
LOOK_EVERY_S = 1.0
POLL_S = 0.05
GRACE_S = process.HANG_LIMIT_S + 60  # the runner on the worker keeps the notebook's deadline itself
START_WORKER = "dask worker {} --nthreads 2 --preload labkit.runner.remote (see docs/cluster.md)"
GOES_ON = "the same command then goes on, and what has finished is not run again"


class _SchedulerLost(LabError):
    """The scheduler does not answer."""


def run(jobs, settings, *, private, progress, go_on):
    """Run tasks on a cluster and yield the `Attempt` of each when it has ended; as `labkit.runner.process.run`."""
    work = private[1]
    with _connected(settings.cluster) as client:
        errands = _Errands(client, settings, progress, go_on)
        errands.forget_older({attempt.batch_key for _, attempt in jobs})
        try:
            for sent, parcel in errands.ended(jobs):
                attempt = parcels.store(sent, parcel, work)
                errands.forget(attempt.run_key)
                progress.end(attempt)
                yield attempt
        except (LedgerError, OSError, _SchedulerLost):  # what has finished there is taken the next time
            raise
        except BaseException:
            errands.cancel()
            raise


@contextmanager
def _connected(address):
    """A dask client; `local` starts two workers on this machine, which only this machine can reach."""
    try:
        import distributed
    except ImportError:
        fix = "pip install distributed, or leave out --cluster"
        raise LabError("A cluster needs the package `distributed`.", found="it is not installed", fix=fix) from None
    logging.getLogger("distributed").setLevel(logging.CRITICAL)  # what is to be known is said here in other words
    if address == "local":
        workers = {"n_workers": min(2, device.usable_cores()), "threads_per_worker": 1, "preload": remote.__name__}
        with (
            distributed.LocalCluster(host="127.0.0.1", dashboard_address="127.0.0.1:0", **workers) as cluster,
            distributed.Client(cluster, set_as_default=False) as client,
        ):
            yield client
        return
    try:
        asyncio.run(_reach(address))
    except (OSError, ValueError, RuntimeError, TypeError) as error:
        raise LabError(
            "No scheduler answers there.",
            expected="an address such as tcp://127.0.0.1:8786, or local; with tls://, dask's settings for TLS",
            found=f"{address}: {str(error).splitlines()[0]}",
            fix="dask scheduler --host 127.0.0.1 (see docs/cluster.md)",
        ) from error
    with distributed.Client(address, timeout=CONNECT_S, set_as_default=False) as client:
        yield client


async def _reach(address):
    """Raise where no scheduler can be reached; a client would leave threads behind that go on trying."""
    from distributed import Security
    from distributed.comm import connect

    comm = await connect(address, timeout=CONNECT_S, **Security().get_connection_args("client"))
    await comm.close()


class _Errands:
    """The tasks that were sent to the cluster and have not come back."""

    def __init__(self, client, settings, progress, go_on):
        self.client, self.settings, self.progress, self.go_on = client, settings, progress, go_on
        self.course = sources.course()
        self.worker_command = START_WORKER.format(client.scheduler.address)
        self.out = {}  # {run key: (job, future)}
        self.refused, self.seats, self.looked, self.fit_seen = {}, 0, 0.0, None

    def ended(self, jobs):
        """Send the jobs, a few more at a time than run, and yield (`Attempt` as sent, parcel) of each that ended."""
        waiting = deque(sorted(jobs, key=lambda job: job[0].source.measures))
        while waiting or self.out:
            self.go_on()
            self.look()
            self.progress.tick()
            while waiting and len(self.out) < self.seats:
                self.send(waiting.popleft())
            for run_key, (job, future) in list(self.out.items()):
                if future.done():
                    del self.out[run_key]
                    if parcel := _parcel(job[1], future):
                        yield job[1], parcel
                    else:
                        waiting.appendleft(job)
            time.sleep(POLL_S)

    def send(self, job):
        """Give a task to the cluster; one that is there already, from before this process, is found again."""
        task, attempt = job
        settings, together = self.settings, self.settings.together
        alone = task.source.measures and not together
        how = ("profile", "solutions", "strict", "together", "cell_deadline_s")
        told = {
            "course": self.course,
            "attempt": asdict(replace(attempt, started_utc="")),  # the same at each start
            "notebook": task.source.path.read_text(encoding="utf-8"),
            "parameters": task.parameters,
            "settings": {name: getattr(settings, name) for name in how},
            "alone": alone,
            "deadline_s": PROFILES[settings.profile][1] + GRACE_S,
        }
        share = {remote.resource(self.course): 1.0 if alone else 1 / (together or 2)}
        with _answering():
            future = self.client.submit(remote.run_task, told, key=attempt.run_key, resources=share)
            self.client.publish_dataset(future, name=attempt.run_key, override=True)
        self.out[attempt.run_key] = (job, future)

    def look(self):
        """Once a second: which workers are there, which of them cannot be used, and what began on them."""
        now = time.monotonic()
        with _answering():
            if self.client.status == "closed":
                raise OSError(f"no answer for {CONNECT_S} s")
            if now - self.looked < LOOK_EVERY_S or self.client.status != "running":
                return
            self.looked, workers = now, self.client.scheduler_info()["workers"]
        flaws = {address: _flaw(worker, self.course) for address, worker in workers.items()}
        known, self.refused = self.refused, {address: flaw for address, flaw in flaws.items() if flaw}
        fit = [worker for address, worker in workers.items() if not flaws[address]]
        self._need_some(fit, now)
        for address in self.refused.keys() - known.keys():
            self.progress.say(f"worker {_name(address, workers[address])} is left out: {flaws[address]}")
        at_most = self.settings.together or 2
        self.progress.together = max(1, sum(min(worker["nthreads"], at_most) for worker in fit))
        self.seats = 2 * self.progress.together if fit else 0  # one waits behind each that runs
        for worker in fit:
            for run_key in worker["metrics"]["labkit"]["running"]:
                self.begin(run_key, worker["metrics"]["labkit"]["host"])

    def begin(self, run_key, host):
        if run_key in self.out and label(self.out[run_key][0][1]) not in self.progress.begun:
            self.progress.begin(label(self.out[run_key][0][1]), host)

    def _need_some(self, fit, now):
        """Refuse to go on for ever without a worker that can be used."""
        if fit:
            self.fit_seen = now
        elif self.fit_seen is None and self.refused:
            self._end("No worker of the cluster can be used.")
        else:
            if self.fit_seen is None:
                self.progress.say(f"no worker is there yet, waiting for one: {self.worker_command}")
                self.fit_seen = now
            if now - self.fit_seen > (ALL_REFUSED_S if self.refused else NO_WORKER_S):
                self._end("The cluster has no worker left that can be used.")

    def _end(self, what):
        found = "; ".join(f"{address}: {flaw}" for address, flaw in self.refused.items()) or "no worker"
        fix = f"mend what stands there, or start a worker: {self.worker_command}; {GOES_ON}"
        raise LabError(what, expected=f"a worker with the course in version {self.course}", found=found, fix=fix)

    def forget(self, run_key):
        """Let the scheduler drop a result that is stored here."""
        with suppress(OSError):
            self.client.unpublish_dataset(run_key)

    def forget_older(self, batch_keys):
        """Drop tasks of other batches of these artifacts: their client was killed, and nobody will ask for them."""
        own = {batch.batch_key for batch in ledger.find(Batch)} - batch_keys
        with _answering():
            names = self.client.list_datasets()
        for name in names:
            if str(name).split("/")[0] in own:
                self.forget(name)

    def cancel(self):
        """Stop what still runs there."""
        with suppress(Exception):  # the scheduler may be what went away
            if self.client.status == "running":
                self.client.cancel([future for _, future in self.out.values()], force=True)
                for run_key in self.out:
                    self.forget(run_key)


@contextmanager
def _answering():
    """Around a word with the scheduler: where it does not answer, the batch ends in words."""
    try:
        yield
    except OSError as error:
        fix = f"start the scheduler and its workers again; {GOES_ON}"
        raise _SchedulerLost("The scheduler went away.", found=str(error), fix=fix) from error


def _parcel(attempt, future):
    """What came back of a task; where nothing did, a parcel that says why; None when it was lost on the way."""
    from distributed import CancelledError, KilledWorker

    try:
        return future.result()
    except (CancelledError, OSError):  # the scheduler was lost for a moment, or for good
        return None
    except KilledWorker as error:
        reason = f"{error.allowed_failures + 1} workers died while they ran it: see their logs"
    except Exception as error:
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
    return parcels.failed(asdict(attempt), reason)


def _name(address, worker):
    about = worker["metrics"].get("labkit")
    return f"{about['host']} ({address})" if about else address


def _flaw(worker, course):
    """Why a worker cannot be used, or None."""
    about = worker["metrics"].get("labkit")
    if about is None:
        return "it was not started with --preload labkit.runner.remote"
    if about["course"] != course:
        found = f"it has the course in another version ({about['course']}, here {course})"
        return f"{found}: bring both to one commit, {remote.AGAIN}"
    return about["refuses"]
