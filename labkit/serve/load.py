"""Load a server: send requests at given times, even if earlier ones are not answered yet."""

import asyncio
import json
import time
from collections.abc import Sequence
from functools import partial

import numpy as np

from labkit.device.child import run_in_child
from labkit.serve.run import pin

ANSWER_LIMIT_S = 600  # for one request
TOKEN_MARK = b"data: {"  # begins the event of each token in a streamed answer


def arrivals(count, rate, seed=0):
    """Draw the times at which requests arrive, by a Poisson process: (count,) in s, ascending.

    count  number of requests
    rate   mean number of requests per second
    """
    return np.random.default_rng(seed).exponential(1 / rate, count).cumsum()


def load(url: str, jobs: list[dict], *, cores: Sequence[int] = ()) -> list[dict]:
    """Send requests to a server from a process of its own, and return the answers.

    jobs     a dict for each request: the fields of POST /v1/completions, and "at", the time at
             which to send it, in s from the start
    cores    cores on which the client may run; (): all
    returns  a list with a dict for each request. "at": when it was sent, in s from the start.
             "times": list of the times at which its tokens came, in s from the start. "error":
             None, or a message; then "times" is empty
    """
    last_at = max((job["at"] for job in jobs), default=0)
    limit_s = last_at + 2 * ANSWER_LIMIT_S
    return run_in_child(
        partial(_send_all, url, jobs, list(cores)), seconds=limit_s, by_the_clock=True
    )


def _send_all(url, jobs, cores):
    """Send the requests from this process, on these cores only; return what `load` returns."""
    pin(cores)
    return asyncio.run(_send_each(url, jobs))


async def _send_each(url, jobs):
    """Send all requests, each at its time, and return their answers in the order of the jobs."""
    from tornado.httpclient import AsyncHTTPClient

    client = AsyncHTTPClient(force_instance=True, max_clients=10_000)
    start = time.perf_counter()
    return await asyncio.gather(*(_send_one(client, url, job, start) for job in jobs))


async def _send_one(client, url, job, start):
    """Send one request at its time, and return its answer as `load` does.

    start  reading of `time.perf_counter` from which all times count
    """
    await asyncio.sleep(job["at"] - (time.perf_counter() - start))
    fields = {name: value for name, value in job.items() if name != "at"}
    body = json.dumps(fields | {"stream": True})
    times = []
    error = None
    end = b""  # of the earlier piece: a mark may begin in one piece and end in the next
    sent_at = time.perf_counter() - start

    def receive(piece):
        nonlocal end
        text = end + piece
        times.extend([time.perf_counter() - start] * text.count(TOKEN_MARK))
        end = text[-len(TOKEN_MARK) + 1 :]

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
