"""Runs the tasks of a batch on the workers of a dask cluster: `labkit run --cluster ADDRESS`.

One dask task is one notebook with one seed. Its parcel comes back and is merged here: only this process writes into
the ledger. Dask starts a task again when its worker died. What was sent and never came back is run again by the same
command. `labkit.runner.remote` is the worker's side.
"""

import asyncio
import logging
import time
from contextlib import ExitStack, contextmanager
from dataclasses import replace

from labkit import ledger
from labkit.device import packages
from labkit.errors import LabError
from labkit.ledger.merge import merge
from labkit.ledger.rows import Attempt
from labkit.runner import remote, sources

CONNECT_S = 10
NO_WORKER_S = 600
POLL_S = 0.5
MACHINE = "labkit"  # the dask resource of which each worker has one; a lesson that measures takes all of it
START_WORKER = "dask worker {} --nthreads 2 --resources labkit=1 (see docs/cluster.md)"
GOES_ON = "the same command then goes on, and what has passed is not run again"


def run(jobs, settings, *, private, progress, go_on):
    """Run tasks on a cluster and yield the `Attempt` of each when it has ended.

    jobs     list of (task, `Attempt`)
    private  (runtime folder, work folder, token): see `keeper.private_places`
    """
    with _connected(settings) as client:
        jobs = sorted(jobs, key=lambda job: job[0].source.measures)
        out = {_send(client, task, settings, place): attempt for place, (task, attempt) in enumerate(jobs)}
        seen = time.monotonic()
        while out:
            go_on()
            progress.tick({})
            seen = _seen(client, seen)
            for future in [future for future in out if future.done()]:
                attempt = _settled(out.pop(future), future, private[1])
                progress.end(attempt)
                yield attempt
            time.sleep(POLL_S)


@contextmanager
def _connected(settings):
    """A dask client; `local` starts a worker on this machine, which only this machine can reach."""
    distributed = packages.imported(
        "distributed",
        what="A cluster needs the package `distributed`.",
        fix="pip install distributed, or leave out --cluster",
    )
    logging.getLogger("distributed").setLevel(logging.CRITICAL)  # what is to be known is said here in other words
    address = settings.cluster
    with ExitStack() as opened:
        if address == "local":
            here = distributed.LocalCluster(
                n_workers=1,
                threads_per_worker=settings.at_a_time(),
                resources={MACHINE: 1},
                host="127.0.0.1",
                dashboard_address="127.0.0.1:0",
            )
            address = opened.enter_context(here).scheduler_address
        try:
            asyncio.run(_reach(address))
        except (OSError, ValueError, RuntimeError, TypeError) as error:
            raise LabError(
                "No scheduler answers there.",
                expected="an address such as tcp://127.0.0.1:8786, or local; with tls://, dask's settings for TLS",
                found=f"{address}: {str(error).splitlines()[0]}",
                fix="dask scheduler --host 127.0.0.1 (see docs/cluster.md)",
            ) from error
        client = opened.enter_context(distributed.Client(address, timeout=CONNECT_S, set_as_default=False))
        client.get_versions(check=True)  # dask warns where packages differ
        yield client


async def _reach(address):
    """Raise where no scheduler can be reached; a client would leave threads behind that go on trying."""
    from distributed import Security
    from distributed.comm import connect

    comm = await connect(address, timeout=CONNECT_S, **Security().get_connection_args("client"))
    await comm.close()


def _send(client, task, settings, place):
    """Give a task to the cluster; returns its future. `place` is its number in the order of the batch."""
    seeds = () if task.seed is None else (task.seed,)
    job = {
        "course": sources.course(),
        "name": task.source.name,
        "text": task.source.path.read_text(encoding="utf-8"),
        "settings": vars(settings) | {"cluster": None, "seeds": seeds},
    }
    alone = task.source.measures and not settings.together
    share = 1 if alone else 1 / (settings.together or 2)
    return client.submit(remote.run_task, job, resources={MACHINE: share}, priority=-place, pure=False)


def _seen(client, before):
    """When a worker that can take a lesson was last there; LabError instead of waiting for ever."""
    try:
        workers = client.scheduler_info()["workers"].values()
    except (OSError, KeyError) as error:  # without its scheduler a client knows of no "workers"
        raise _lost(error) from error
    if any(worker["resources"].get(MACHINE, 0) >= 1 for worker in workers):
        return time.monotonic()
    if workers or time.monotonic() - before > NO_WORKER_S:
        raise LabError(
            "The cluster has no worker that can take a lesson.",
            found=f"{len(workers)} without --resources labkit=1" if workers else "none",
            fix=f"{START_WORKER.format(client.scheduler.address)}; {GOES_ON}",
        )
    return before


def _lost(error):
    return LabError(
        "The scheduler went away.",
        found=str(error).splitlines()[0],
        fix=f"start the scheduler and its workers again; {GOES_ON}",
    )


def _settled(sent, future, work):
    """The `Attempt` of a task that has ended, stored with all its rows; `sent` is the attempt as it was planned."""
    try:
        host, content = future.result()
    except LabError:
        raise
    except Exception as error:
        if future.status != "error":  # the task did not fail: nobody says any more what became of it
            raise _lost(error) from error
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        failed = replace(sent, status="failed", reason=reason, output=None, seconds=0.0, cells_done=0)
        ledger.add(failed)
        return failed
    parcel = work / "parcel.zip"
    parcel.write_bytes(content)
    rows = merge(parcel, as_ours={"batch_key": sent.batch_key, "host": host})  # a run keeps the key it had there
    return next(row for row in rows if isinstance(row, Attempt))
