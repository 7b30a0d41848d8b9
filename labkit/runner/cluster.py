"""Run the tasks of a batch on the workers of a dask cluster: `labkit run --cluster ADDRESS`.

One dask task is one notebook with one seed. The worker runs it by `labkit.runner.remote`, and sends
its rows and its executed notebook back as a parcel, a zip. The parcel is merged here: only this
process writes into the ledger.

Dask starts a task again when its worker died. Where a parcel never came back, the user gives the
same command again, which runs the tasks that are missing.
"""

import asyncio
import logging
import tempfile
import time
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from labkit import ledger
from labkit.device import packages
from labkit.errors import LabError, first_line
from labkit.ledger.merge import merge
from labkit.ledger.rows import Attempt
from labkit.runner import remote, sources

CONNECT_S = 30  # a scheduler on a busy machine answers late
NO_WORKER_S = 600
POLL_S = 0.5
# the dask resource of which each worker has one; a lesson that measures takes all of it
MACHINE = "labkit"
START_WORKER = "dask worker {} --nthreads 2 --resources labkit=1 (see docs/cluster.md)"
GOES_ON = "the same command then goes on, and what has passed is not run again"


def run(jobs, settings, *, progress, go_on):
    """Run tasks on a cluster, and yield the `Attempt` of each task when it has ended.

    jobs      list of (`labkit.runner.tasks.NotebookTask`, `Attempt`)
    settings  a `labkit.runner.tasks.BatchSettings`
    progress  a `labkit.runner.progress.Progress`
    go_on     function called every `POLL_S` seconds; it raises after the user has stopped the batch
    Raises    LabError where no scheduler answers, and where the cluster has no worker for lessons
    """
    with _connected_client(settings) as client:
        # Notebooks that measure come last: each waits until a worker has nothing else to do.
        jobs = sorted(jobs, key=lambda job: job[0].source.measures)
        unfinished = {}
        for position, (task, attempt) in enumerate(jobs):
            unfinished[_submit(client, task, settings, position)] = attempt
        last_seen = time.monotonic()
        while unfinished:
            go_on()
            progress.tick({})
            last_seen = _last_seen_worker(client, last_seen)
            for future in list(unfinished):
                if future.done():
                    attempt = _store_outcome(unfinished.pop(future), future)
                    progress.end(attempt)
                    yield attempt
            time.sleep(POLL_S)


@contextmanager
def _connected_client(settings):
    """Yield a dask client of the cluster in `settings`.

    The address "local" starts a scheduler and a worker on this machine; other machines cannot reach
    them.

    Raises  LabError where no scheduler answers at the address, or where dask is not installed
    """
    distributed = packages.imported(
        "distributed",
        problem="A cluster needs the package `distributed`.",
        fix="pip install distributed, or leave out --cluster",
    )
    # silence dask: labkit's own errors say what went wrong
    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    address = settings.cluster
    with ExitStack() as contexts:
        if address == "local":
            local_cluster = distributed.LocalCluster(
                n_workers=1,
                threads_per_worker=settings.at_a_time(),
                resources={MACHINE: 1},
                host="127.0.0.1",
                dashboard_address="127.0.0.1:0",
            )
            address = contexts.enter_context(local_cluster).scheduler_address
        try:
            asyncio.run(_require_scheduler(address))
        except (OSError, ValueError, RuntimeError, TypeError) as error:
            raise LabError(
                "No scheduler answers there.",
                expected="an address such as tcp://127.0.0.1:8786, or local; with tls://, dask's "
                "settings for TLS",
                found=f"{address}: {first_line(error)}",
                fix="dask scheduler --host 127.0.0.1 (see docs/cluster.md)",
            ) from error
        client = contexts.enter_context(
            distributed.Client(address, timeout=CONNECT_S, set_as_default=False)
        )
        client.get_versions(check=True)  # dask warns where packages differ
        yield client


async def _require_scheduler(address):
    """Raise an error of the connection where no scheduler answers at the address.

    A dask client is not used for this test: its threads would try to connect for ever.
    """
    from distributed import Security
    from distributed.comm import connect

    connection = await connect(
        address, timeout=CONNECT_S, **Security().get_connection_args("client")
    )
    await connection.close()


def _submit(client, task, settings, position):
    """Submit a task to the cluster and return its future.

    The result of the future is what `remote.run_task` returns.

    position  number of the task in the batch, from 0: tasks with a lower number start first
    """
    seeds = () if task.seed is None else (task.seed,)
    settings_of_task = vars(settings) | {"cluster": None, "seeds": seeds}
    share_of_worker = 1 if settings.runs_alone(task) else 1 / (settings.together or 2)
    return client.submit(
        remote.run_task,
        sources.course(),
        task.source.name,
        task.source.path.read_text(encoding="utf-8"),
        settings_of_task,
        resources={MACHINE: share_of_worker},
        priority=-position,
        pure=False,
    )


def _last_seen_worker(client, earlier):
    """Return the last time at which the cluster had a worker that can take a lesson.

    Such a worker has the dask resource `MACHINE`. Times are seconds of `time.monotonic`.

    earlier  what the previous call returned
    Raises   LabError where there has been no worker for NO_WORKER_S seconds, where there are
             workers but none has the resource, and where the scheduler no longer answers
    """
    try:
        workers = client.scheduler_info()["workers"].values()
    except (OSError, KeyError) as error:  # without its scheduler a client knows of no "workers"
        raise _scheduler_lost(error) from error
    if any(worker["resources"].get(MACHINE, 0) >= 1 for worker in workers):
        return time.monotonic()
    if workers or time.monotonic() - earlier > NO_WORKER_S:
        found = "none"
        if workers:
            found = f"{len(workers)} without --resources labkit=1"
        raise LabError(
            "The cluster has no worker that can take a lesson.",
            found=found,
            fix=f"{START_WORKER.format(client.scheduler.address)}; {GOES_ON}",
        )
    return earlier


def _scheduler_lost(error):
    """Return the LabError for a scheduler that no longer answers.

    error  what dask raised
    """
    return LabError(
        "The scheduler went away.",
        found=first_line(error),
        fix=f"start the scheduler and its workers again; {GOES_ON}",
    )


def _store_outcome(planned, future):
    """Store the rows of a task that has ended, and return its `Attempt`.

    If the task raised an error on the worker, so that there is no parcel, a failed `Attempt` is
    stored.

    planned  the `Attempt` as it was before the task was sent
    future   the task's dask future
    Raises   LabError where the whole batch has to end: the worker has another version of the
             course, or the scheduler is gone
    """
    try:
        host, content = future.result()
    except LabError:  # it ends the whole batch: the worker has another version of the course
        raise
    except Exception as error:
        # the task itself did not fail: the scheduler is gone, and with it the outcome
        if future.status != "error":
            raise _scheduler_lost(error) from error
        reason = first_line(error)
        failed = replace(
            planned, status="failed", reason=reason, output=None, seconds=0.0, cells_done=0
        )
        ledger.add(failed)
        return failed
    with tempfile.TemporaryDirectory() as folder:
        parcel = Path(folder) / "parcel.zip"
        parcel.write_bytes(content)
        rows = merge(parcel, as_ours={"batch_key": planned.batch_key, "host": host})
    return next(row for row in rows if isinstance(row, Attempt))
