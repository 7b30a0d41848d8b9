"""The requests of the OpenAI package, byte for byte as it sends them, and its reading of the
answers.

The package itself is not installed: `Client` sends its headers and bodies, and reads answers by its
rules. It leaves out what is not given, sends None as null, takes an event with "error" for an
error, and stops at "[DONE]".
"""

import json
import time

import httpx
import pytest
from served import wanted

from labkit.serve import running

pytestmark = [pytest.mark.slow, pytest.mark.kills]

HEADERS = {
    "Accept": "application/json",
    "Content-Type": "application/json",
    "User-Agent": "OpenAI/Python 2.8.0",
    "Authorization": "Bearer sk-none",
    "X-Stainless-Lang": "python",
    "X-Stainless-Package-Version": "2.8.0",
    "X-Stainless-OS": "Linux",
    "X-Stainless-Arch": "x64",
    "X-Stainless-Runtime": "CPython",
    "X-Stainless-Runtime-Version": "3.11.9",
    "X-Stainless-Async": "false",
    "x-stainless-retry-count": "0",
    "x-stainless-read-timeout": "600",
}
MODEL = "decoder-small"
TEXT = wanted("A batch of ", 24)
GREEDY = {"model": MODEL, "prompt": "A batch of ", "max_tokens": 24, "temperature": 0}


class Client:
    """Sends what `openai.OpenAI(base_url=..., api_key=...)` sends."""

    def __init__(self, url):
        self.http = httpx.Client(base_url=f"{url}/v1/", headers=HEADERS, timeout=60)

    def create(self, **fields):
        """Do what `client.completions.create` does: the answer, or the list of chunks of a
        stream.
        """
        if not fields.get("stream"):
            answer = self.http.post("completions", json=fields)
            assert answer.status_code == 200, answer.text
            return answer.json()
        chunks = []
        with self.http.stream("POST", "completions", json=fields) as answer:
            assert answer.status_code == 200
            assert answer.headers["content-type"].startswith("text/event-stream")
            for line in answer.iter_lines():
                name, _, data = line.partition(":")
                if name != "data":
                    continue
                data = data.removeprefix(" ")
                if data.startswith("[DONE]"):
                    return chunks
                chunks.append(json.loads(data))
                assert not chunks[-1].get("error"), chunks[-1]
        raise AssertionError("the stream ended without [DONE]")


@pytest.fixture(scope="module")
def client():
    with running(MODEL, rows=4, waiting=8, threads=1) as url:
        client = Client(url)
        yield client
        client.http.close()


def texts(answer):
    return [choice["text"] for choice in answer["choices"]]


def texts_of_stream(chunks, count=1):
    """The texts of a stream, put together by index, and why each ended."""
    parts = [""] * count
    reasons = [None] * count
    for chunk in chunks:
        for choice in chunk["choices"]:
            parts[choice["index"]] += choice["text"]
            reasons[choice["index"]] = choice["finish_reason"]
    return parts, reasons


NEUTRAL = {
    "best_of": 1, "echo": False, "frequency_penalty": 0, "logit_bias": {}, "logprobs": None, "n": 1,
    "presence_penalty": 0.0, "seed": 1, "stop": None, "stream": False, "stream_options": None, "suffix": None,
    "top_p": 1, "user": "ada",
}  # fmt: skip
FOUR, SIX = TEXT[4:6], TEXT[6:9]
# {call: (fields beside GREEDY, the texts that come back, why they end)}
CALLS = {
    "the model and a prompt": ({}, [TEXT], "length"),
    "all fields that change nothing": (NEUTRAL, [TEXT], "length"),
    "all fields as null": (dict.fromkeys([*NEUTRAL, "model"]), [TEXT], "length"),
    "stop as a string": ({"stop": FOUR}, [TEXT[: TEXT.index(FOUR)]], "stop"),
    "stop as a list": ({"stop": ["\0never", SIX]}, [TEXT[: TEXT.index(SIX)]], "stop"),
    "no stop in a list": ({"stop": []}, [TEXT], "length"),
    "whole numbers written as others": (
        {"max_tokens": 24.0, "n": 1.0, "seed": 3.0},
        [TEXT],
        "length",
    ),
    "top_p that leaves the likeliest": ({"temperature": 1, "top_p": 0}, [TEXT], "length"),
    "echo": ({"echo": True}, [f"A batch of {TEXT}"], "length"),
    "prompts in a list": ({"prompt": ["A batch of ", "The"]}, [TEXT, wanted("The", 24)], "length"),
    "tokens": ({"prompt": list(b"A batch of ")}, [TEXT], "length"),
    "lists of tokens": (
        {"prompt": [list(b"The"), list(b"A batch of ")]},
        [wanted("The", 24), TEXT],
        "length",
    ),
    "several choices": ({"n": 3, "best_of": 3}, [TEXT] * 3, "length"),
    "another name for the model": ({"model": "gpt-3.5-turbo-instruct"}, [TEXT], "length"),
    "a seed below 0": ({"seed": -1}, [TEXT], "length"),
    "a prompt that fills the limit": (
        {"prompt": "x" * 512, "max_tokens": 2},
        [wanted("x" * 512, 2)],
        "length",
    ),
}


@pytest.mark.parametrize("call", CALLS)
def test_a_call_is_answered_in_one_piece(client, call):
    fields, expected, ended = CALLS[call]
    answer = client.create(**GREEDY | fields)
    assert texts(answer) == expected
    assert [choice["index"] for choice in answer["choices"]] == list(range(len(expected)))
    assert {choice["finish_reason"] for choice in answer["choices"]} == {ended}
    assert {choice["logprobs"] for choice in answer["choices"]} == {None}
    assert (answer["object"], answer["model"]) == ("text_completion", MODEL)
    assert abs(answer["created"] - time.time()) < 600 and isinstance(answer["created"], int)
    usage = answer["usage"]
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]


@pytest.mark.parametrize("call", CALLS)
def test_a_stream_says_the_same(client, call):
    fields, expected, ended = CALLS[call]
    chunks = client.create(**GREEDY | fields | {"stream": True})
    assert texts_of_stream(chunks, len(expected)) == (expected, [ended] * len(expected))
    assert len({chunk["id"] for chunk in chunks}) == 1, "one id for all chunks of an answer"
    assert {(chunk["object"], chunk["model"]) for chunk in chunks} == {("text_completion", MODEL)}
    assert "usage" not in chunks[-1]


def test_each_answer_has_an_id_of_its_own(client):
    first, second = (client.create(**GREEDY | {"max_tokens": 1})["id"] for _ in range(2))
    assert first.startswith("cmpl-") and second.startswith("cmpl-") and first != second


def test_usage_counts_each_prompt_once_and_the_tokens_of_all_choices(client):
    fields = GREEDY | {"prompt": ["The", "A batch of "], "n": 2, "max_tokens": 5}
    expected = {"prompt_tokens": 14, "completion_tokens": 20, "total_tokens": 34}
    assert client.create(**fields)["usage"] == expected
    *chunks, last = client.create(**fields, stream=True, stream_options={"include_usage": True})
    assert (last["choices"], last["usage"]) == ([], expected)
    assert {chunk["usage"] for chunk in chunks} == {None}
    fields = GREEDY | {"stop": FOUR}
    written = TEXT.index(FOUR) + len(FOUR)
    assert client.create(**fields)["usage"]["completion_tokens"] == written, (
        "a stop is written, and not shown"
    )


def test_choices_differ_by_chance_and_a_seed_repeats_them(client):
    fields = GREEDY | {"temperature": 1, "n": 3, "seed": 7, "top_p": 0.9}
    first = texts(client.create(**fields))
    assert len(set(first)) == 3
    assert texts(client.create(**fields)) == first
    assert texts_of_stream(client.create(**fields, stream=True), 3)[0] == first


def test_models_are_listed_and_found_by_name(client):
    listed = client.http.get("models").json()
    [model] = listed["data"]
    assert (listed["object"], model["id"], model["object"]) == ("list", MODEL, "model")
    assert isinstance(model["created"], int) and isinstance(model["owned_by"], str)
    assert client.http.get(f"models/{MODEL}").json() == model
    other = client.http.get("models/gpt-4")
    assert (other.status_code, other.json()["error"]["message"]) == (
        404,
        f"the model here is {MODEL}",
    )


REFUSED = {  # {field: what the reason names}; what this server cannot do, it says
    "logprobs": (5, "logprobs"),
    "suffix": ("end", "suffix"),
    "logit_bias": ({"50256": -100}, "logit_bias"),
    "best_of": (3, "best_of"),
    "metadata": ({}, "'metadata' is no field here"),
    "<b>\n": (1, "no field here"),
}


@pytest.mark.parametrize("field", REFUSED)
def test_what_is_not_served_is_refused_with_the_fields_name(client, field):
    value, words = REFUSED[field]
    answer = client.http.post("completions", json=GREEDY | {field: value})
    assert answer.status_code == 400
    assert words in answer.json()["error"]["message"]


def test_a_conversation_is_refused_with_what_there_is(client):
    answer = client.http.post(
        "chat/completions", json={"model": MODEL, "messages": [{"role": "user", "content": "Hi"}]}
    )
    assert answer.status_code == 404
    assert "not on conversations" in answer.json()["error"]["message"]
    assert "POST /v1/completions" in answer.json()["error"]["message"]
