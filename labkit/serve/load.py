"""Load a server: send requests at given times, whether or not earlier ones are answered."""

import asyncio
import json
import time
from collections.abc import Sequence
from functools import partial

import numpy as np

from labkit.device.child import run_in_child
from labkit.serve.run import pin

ANSWER_LIMIT_S = 600  # for one request


def arrivals(count, rate, seed=0):
    """Draw the times of `count` requests of a Poisson process: (count,) in s, ascending.

    rate  mean number of requests per second
    """
    return np.random.default_rng(seed).exponential(1 / rate, count).cumsum()


def load(url: str, jobs: list[dict], *, cores: Sequence[int] = ()) -> list[dict]:
    """Send jobs to a server from a process of its own. Return an answer for each, in order.

    jobs     dicts of the fields of POST /v1/completions, and "at": when to send it, in s
    cores    cores on which the client may run; (): all
    returns  a dict for each job. "at": when it was sent. "times": when each token came, a list.
             Both count in s from the start. "error": the message in place of tokens; None without
             an error
    """
    last_at = max((job["at"] for job in jobs), default=0)
    limit_s = last_at + 2 * ANSWER_LIMIT_S
    return run_in_child(
        partial(_send_all, url, jobs, list(cores)), seconds=limit_s, by_the_clock=True
    )


def _send_all(url, jobs, cores):
    """Send the jobs from this process, on these cores only, and return the answers."""
    pin(cores)
    return asyncio.run(_send_each(url, jobs))


async def _send_each(url, jobs):
    """Send all jobs, each at its time, and return their answers in the order of the jobs."""
    from tornado.httpclient import AsyncHTTPClient

    client = AsyncHTTPClient(force_instance=True, max_clients=10_000)
    start = time.perf_counter()
    return await asyncio.gather(*(_send_one(client, url, job, start) for job in jobs))


async def _send_one(client, url, job, start):
    """Send one job at its time, in s from `start`, and return its answer."""
    await asyncio.sleep(job["at"] - (time.perf_counter() - start))
    fields = {name: value for name, value in job.items() if name != "at"}
    body = json.dumps(fields | {"stream": True})
    times = []
    error = None
    sent_at = time.perf_counter() - start

    def receive(piece):
        times.extend([time.perf_counter() - start] * piece.count(b"data: {"))

    options = {
        "headers": {"Content-Type": "application/json"},
        "request_timeout": ANSWER_LIMIT_S,
        "connect_timeout": ANSWER_LIMIT_S,
    }
    try:
        await client.fetch(
            f"{url}/v1/completions", method="POST", body=body, streaming_callback=receive, **options
        )
    except Exception as problem:  # an error of the server is a result, too
        error = str(problem)
        times = []
    return {"at": sent_at, "times": times, "error": error}
