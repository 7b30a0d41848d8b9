"""The body of a request, read without a server: what a client means that leaves a field out."""

import json
from types import SimpleNamespace

from labkit.serve.parsing import parsed
from labkit.serve.server import Limits

SERVER = SimpleNamespace(limits=Limits(), longest=512)
JSON = {"Content-Type": "application/json"}


def completion(**fields):
    body = json.dumps({"prompt": "The", **fields}).encode()
    return parsed(SimpleNamespace(headers=JSON, body=body), SERVER)


def test_what_a_client_leaves_out_is_as_in_the_package_of_openai():
    whole = completion()
    [request] = whole.requests
    assert (request.count, request.temperature, request.top_p, request.stops) == (16, 1.0, 1.0, [])
    assert (whole.stream, whole.echo, whole.with_usage) == (False, False, False)
    null = dict.fromkeys(("max_tokens", "temperature", "top_p", "stop", "stream"))
    [same] = completion(**null).requests
    assert (same.count, same.temperature, same.top_p, same.stops) == (16, 1.0, 1.0, [])


def test_each_choice_has_a_seed_of_its_own():
    assert [request.seed for request in completion(n=3, seed=7).requests] == [7, 8, 9]
