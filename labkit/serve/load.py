"""A client that loads a server: requests at given times, whether or not earlier ones are
answered.
"""

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
    """Return moments (count,) in s of a Poisson process with `rate` requests per second."""
    return np.random.default_rng(seed).exponential(1 / rate, count).cumsum()


def load(url: str, jobs: list[dict], *, cores: Sequence[int] = ()) -> list[dict]:
    """Send jobs from a process of its own. Returns {"at", "times", "error"} for each, in their
    order.

    jobs   dicts of the fields of POST /v1/completions, with "at": when to send it, in s
    cores  let the client run on these only
    at     when it was sent, in s since the start
    times  when each token came, in s since the start
    error  the answer in place of tokens; None where there is none
    """
    last_at = max((job["at"] for job in jobs), default=0)
    limit_s = last_at + 2 * ANSWER_LIMIT_S
    return run_in_child(
        partial(_send_all, url, jobs, list(cores)), seconds=limit_s, by_the_clock=True
    )


def _send_all(url, jobs, cores):
    """Send the jobs from this process, which runs on these cores only."""
    pin(cores)
    return asyncio.run(_all(url, jobs))


async def _all(url, jobs):
    """Send all jobs, each at its time. Returns their answers in the order of the jobs."""
    from tornado.httpclient import AsyncHTTPClient

    client = AsyncHTTPClient(force_instance=True, max_clients=10_000)
    start = time.perf_counter()
    return await asyncio.gather(*(_one(client, url, job, start) for job in jobs))


async def _one(client, url, job, start):
    """Send one job at its time, and note when each token comes."""
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
    except Exception as problem:  # whatever a server answers instead is a result
        error = str(problem)
        times = []
    return {"at": sent_at, "times": times, "error": error}
