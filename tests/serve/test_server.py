"""The server as a process: answers, limits, bad requests, slow readers, clients that go away,
Ctrl-C.
"""

import http.client
import json
import socket
import subprocess
import sys
import time
from urllib.parse import urlsplit

import pytest
from served import ask, is_well, message, metrics, raw, seconds_to_end, send_malformed, wanted

from labkit.serve import arrivals, load, running

pytestmark = [pytest.mark.slow, pytest.mark.kills]


@pytest.fixture(scope="module")
def url():
    with running("decoder-small", rows=4, waiting=8, threads=1) as address:
        yield address


def test_an_answer_is_what_the_decoder_writes(url):
    status, answer = ask(url, {"prompt": "A batch of ", "max_tokens": 30, "temperature": 0})
    assert status == 200
    text = wanted("A batch of ", 30)
    assert answer["choices"] == [
        {"index": 0, "text": text, "logprobs": None, "finish_reason": "length"}
    ]
    assert answer["usage"] == {"prompt_tokens": 11, "completion_tokens": 30, "total_tokens": 41}


def test_a_stream_says_the_same_in_pieces(url):
    place = urlsplit(url)
    client = http.client.HTTPConnection(place.hostname, place.port, timeout=30)
    body = json.dumps({"prompt": "A batch of ", "max_tokens": 30, "temperature": 0, "stream": True})
    client.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
    lines = [line for line in client.getresponse().read().decode().split("\n\n") if line]
    client.close()
    assert lines[-1] == "data: [DONE]"
    pieces = [json.loads(line.removeprefix("data: "))["choices"][0] for line in lines[:-1]]
    assert len(pieces) == 30
    assert "".join(piece["text"] for piece in pieces) == wanted("A batch of ", 30)
    assert [piece["finish_reason"] for piece in pieces] == [None] * 29 + ["length"]


def test_a_seed_decides_what_is_written(url):
    bodies = [
        {"prompt": "The", "max_tokens": 40, "seed": seed, "temperature": 1.0} for seed in (1, 1, 2)
    ]
    first, again, other = (ask(url, body)[1]["choices"][0]["text"] for body in bodies)
    assert first == again != other


# What a JSON body may say; the first ones are 0 for every float32.
TEMPERATURES = ["5e-324", "1e-320", "1e-40", "1e-39", "1e-38", "1e-37", "1e-9", "1e-6"]
TEMPERATURES += ["1e-3", "0.5", "10", "0", "-0.0", "1", "1.0", "null"]


@pytest.mark.parametrize("temperature", TEMPERATURES)
def test_every_temperature_within_the_limits_is_answered_and_one_near_0_is_0(url, temperature):
    status, answer = ask(url, f'{{"prompt": "The", "max_tokens": 8, "temperature": {temperature}}}')
    assert status == 200
    if temperature != "null" and float(temperature) <= 1e-6:
        assert answer["choices"][0]["text"] == wanted("The", 8)


X = {"prompt": "x"}
WRONG = {
    400: [
        "", "{", "[]", "null", "1", '"x"', "{}", b"\xff\xfe", "[" * 60_000, '{"prompt": ' + "9" * 5000 + "}",
        {"prompt": None}, {"prompt": ""}, {"prompt": 3}, {"prompt": "x" * 513}, {"prompt": "\ud800"}, {"prompt": True},
        {"prompt": []}, {"prompt": [""]}, {"prompt": ["a", ""]}, {"prompt": ["a", 1]}, {"prompt": ["a", None]},
        {"prompt": [256]}, {"prompt": [-1]}, {"prompt": [1.5]}, {"prompt": [True]}, {"prompt": [[]]},
        {"prompt": [[1], "a"]}, {"prompt": [["a"]]}, {"prompt": [[[1]]]}, {"prompt": ["a"] * 9}, {"prompt": {"a": 1}},
        X | {"max_tokens": 0}, X | {"max_tokens": 257}, X | {"max_tokens": "9"}, X | {"max_tokens": -(10**40)},
        X | {"max_tokens": True}, X | {"max_tokens": 1.5}, X | {"max_tokens": []}, X | {"max_tokens": 10**40},
        X | {"temperature": -1}, X | {"temperature": 11}, X | {"temperature": "1"}, X | {"temperature": [1]},
        *(f'{{"prompt": "x", "temperature": '
          f'{number}}}' for number in ("NaN", "Infinity", "1e999", "-1e-9")),
        *(f'{{"prompt": "x", "max_tokens": '
          f'{number}}}' for number in ("NaN", "Infinity", "1e999", "1e-9")),
        *(f'{{"prompt": "x", "{name}": NaN}}' for name in ("top_p", "seed", "n", "best_of", "frequency_penalty")),
        X | {"top_p": -0.1}, X | {"top_p": 1.1}, X | {"top_p": "1"}, X | {"top_p": True},
        X | {"seed": 2**64}, X | {"seed": -(2**64)}, X | {"seed": "a"}, X | {"seed": 0.5},
        X | {"stop": ""}, X | {"stop": [""]}, X | {"stop": ["a"] * 5}, X | {"stop": 1}, X | {"stop": [1]},
        X | {"stop": "x" * 65}, X | {"stop": "\ud800"}, X | {"stop": {}}, X | {"stop": [None]},
        X | {"stream": 1}, X | {"stream": "true"}, X | {"stream_options": True}, X | {"echo": 1}, X | {"echo": "no"},
        X | {"n": 0}, X | {"n": 9}, X | {"n": -1}, X | {"n": "1"}, X | {"n": 2, "best_of": 3},
        {"prompt": ["a", "b"], "n": 5},
        X | {"new": 1}, X | {"\n<\ud800>": 1}, X | {"model": 1}, X | {"user": 1},
        X | {"frequency_penalty": 0.5}, X | {"presence_penalty": -2}, X | {"presence_penalty": "0"},
        X | {"frequency_penalty": False}, X | {"logit_bias": {"50256": -100}}, X | {"logit_bias": []},
        X | {"logprobs": 0}, X | {"logprobs": 5}, X | {"suffix": "end"},
    ],
}  # fmt: skip


@pytest.mark.parametrize("body", WRONG[400], ids=lambda body: repr(body)[:40])
def test_what_is_wrong_is_answered_with_400_and_a_reason(url, body):
    status, answer = ask(url, body)
    assert status == 400
    assert answer["error"]["message"] and answer["error"]["type"] == "invalid_request_error"


@pytest.mark.parametrize(
    "status, headers",
    [
        (415, {"Content-Type": "text/plain"}),
        (415, {"Content-Type": "application/x-www-form-urlencoded"}),
        (403, {"Host": "evil.example"}),
        (403, {"Host": "127.0.0.1"}),
        (403, {"Origin": "http://evil.example"}),
        (403, {"Origin": "null"}),
    ],
)
def test_who_may_not_ask_is_refused(url, status, headers):
    found, answer = ask(url, {"prompt": "x"}, **headers)
    assert found == status
    assert answer["error"]["message"]


def test_other_paths_and_methods_are_errors_in_json_too_and_no_other_origin_is_let_in(url):
    assert ask(url, "", method="GET", path="/nothing")[0] == 404
    assert ask(url, "", method="GET")[0] == 405
    assert ask(url, "", method="OPTIONS")[0] == 405
    place = urlsplit(url)
    client = http.client.HTTPConnection(place.hostname, place.port, timeout=30)
    client.request("GET", "/health")
    answer = client.getresponse()
    assert json.loads(answer.read()) == {"status": "ok", "model": "decoder-small"}
    assert not [
        name for name, _ in answer.getheaders() if name.lower().startswith("access-control")
    ]
    client.close()


def test_1000_malformed_requests_stop_nobody(url):
    send_malformed(url, 1000)
    assert is_well(url)


def test_a_body_that_is_too_large_is_refused(url):
    raw(url, message(url, "", length=10**9), wait=0.1)
    assert is_well(url)


def test_clients_that_go_away_leave_nothing_behind(url):
    body = json.dumps({"prompt": "The", "max_tokens": 250, "stream": True})
    for n in range(20):
        raw(url, message(url, body), wait=0.02 * (n % 3))
    assert is_well(url)
    deadline = time.monotonic() + 60
    while metrics(url)["writing"] + metrics(url)["waiting"] and time.monotonic() < deadline:
        time.sleep(0.1)
    now = metrics(url)
    assert now["writing"] == now["waiting"] == 0
    assert now["gone"] > 0
    assert now["requests"] == now["finished"] + now["gone"] + now["failed"]
    assert now["failed"] == 0


def test_slow_clients_stop_nobody(url):
    place = urlsplit(url)
    slow = [socket.create_connection((place.hostname, place.port)) for _ in range(30)]
    body = json.dumps({"prompt": "The", "max_tokens": 200, "stream": True})
    for n, client in enumerate(slow):
        # half of them never end their request
        client.sendall(message(url, body)[: 40 if n % 2 else None])
    while metrics(url)["writing"] + metrics(url)["waiting"] > 4:
        time.sleep(0.05)
    assert is_well(url)
    for client in slow:
        client.close()


def test_more_than_may_wait_are_turned_away(url):
    jobs = [{"at": 0.0, "prompt": "The", "max_tokens": 200, "temperature": 0} for _ in range(40)]
    answers = load(url, jobs)
    refused = [each for each in answers if each["error"]]
    assert 0 < len(refused) <= 40 - 8
    assert all("429" in each["error"] for each in refused)
    assert all(len(each["times"]) == 200 for each in answers if not each["error"])
    assert is_well(url)


def test_the_load_comes_when_it_should(url):
    # as many as the server has places for, however slow the machine is
    moments = arrivals(12, 40.0, seed=3)
    found = load(url, [{"at": at, "prompt": "The", "max_tokens": 5} for at in moments])
    for at, each in zip(moments, found, strict=True):
        assert at <= each["at"] <= at + 5
        assert each["times"] == sorted(each["times"]) and len(each["times"]) == 5


@pytest.mark.parametrize("busy", [False, True])
def test_ctrl_c_ends_it(busy):
    """How soon, benchmarks/serving.py says; here it must not wait until a text of minutes is
    written.
    """
    seconds, code = seconds_to_end(busy)
    assert seconds < 30
    assert code == 0


def test_it_does_not_listen_to_others_without_a_token():
    command = [
        sys.executable,
        "-m",
        "labkit.cli",
        "serve",
        "--model",
        "decoder-small",
        "--host",
        "0.0.0.0",
        "--port",
        "0",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=400)
    assert done.returncode == 2
    assert "LABKIT_SERVE_TOKEN" in done.stderr
