"""Serve a decoder to many users over HTTP, with continuous batching; send such a server requests.

    with running("decoder-medium", cores=[0], threads=1) as url:
        jobs = [{"at": at, "prompt": "A batch", "max_tokens": 32} for at in arrivals(100, rate=5)]
        answers = load(url, jobs, cores=[1])

Here the server computes on core 0, and the client that sends the requests on core 1.
"""
# ruff: noqa: F401 (what is offered here)

from labkit.serve.load import arrivals, load
from labkit.serve.run import run, running
