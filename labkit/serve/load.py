"""A client that loads a server: requests at given times, whether or not earlier ones are answered."""

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Sequence

import numpy as np

from labkit.serve.run import pin


def arrivals(count, rate, seed=0):
    """Moments (count,) in s of a Poisson process with `rate` requests per second."""
    return np.random.default_rng(seed).exponential(1 / rate, count).cumsum()


def load(url: str, jobs: list[dict], *, cores: Sequence[int] = ()) -> list[dict]:
    """Send jobs from a process of its own: for each {"at", "times", "error"}, in their order.

    jobs   dicts of what POST /v1/completions takes, with "at": when to send it, in s
    cores  let the client run on these only
    at     when it was sent; times: when each token came, both in s since the begin; error: what was answered instead
    """
    given = json.dumps({"url": url, "jobs": jobs, "cores": list(cores)})
    command = [sys.executable, "-c", "from labkit.serve.load import main; main()"]
    done = subprocess.run(command, input=given, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout)


async def _all(url, jobs):
    from tornado.httpclient import AsyncHTTPClient

    client, begin = AsyncHTTPClient(force_instance=True, max_clients=10_000), time.perf_counter()
    return await asyncio.gather(*(_one(client, url, job, begin) for job in jobs))


async def _one(client, url, job, begin):
    """Send one job at its time, and note when each token comes."""
    await asyncio.sleep(job["at"] - (time.perf_counter() - begin))
    times, body = [], {key: value for key, value in job.items() if key != "at"}
    at, error = time.perf_counter() - begin, None

    def took(piece):
        times.extend([time.perf_counter() - begin] * piece.count(b"data: {"))

    how = {"headers": {"Content-Type": "application/json"}, "request_timeout": 600, "connect_timeout": 600}
    body = json.dumps(body | {"stream": True})
    try:
        await client.fetch(f"{url}/v1/completions", method="POST", body=body, streaming_callback=took, **how)
    except Exception as problem:  # whatever a server answers instead is a result
        error, times = str(problem), []
    return {"at": at, "times": times, "error": error}


def main():
    """In the process of the client: jobs from stdin, answers to stdout."""
    told = json.load(sys.stdin)
    pin(told["cores"])
    print(json.dumps(asyncio.run(_all(told["url"], told["jobs"]))))
