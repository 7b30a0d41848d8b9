"""A network that fails: whoever asked for that text is told, and the server goes on."""

import asyncio
import json

import httpx
import pytest
import torch

from labkit.models.decoder import Decoder
from labkit.serve.server import Limits, Server


class Fails(Decoder):
    """A decoder that fails when it reads the token 0, and when it has written a number of
    tokens.
    """

    written = 0
    fails_at = None

    def extend(self, tokens, cache):
        self.written += 1
        if (tokens == 0).any() or self.written == self.fails_at:
            raise RuntimeError("not enough memory")
        return super().extend(tokens, cache)


@pytest.fixture
def decoder():
    torch.manual_seed(0)
    return Fails(24, 1, heads=3, groups=1, inner=20, longest=40).eval()


def serve(decoder, scenario):
    """What a scenario, a coroutine function of a client, returns beside a server of this
    decoder.
    """

    async def run():
        server = Server(decoder, name="fails", limits=Limits(rows=2), token=None)
        address = asyncio.get_running_loop().create_future()
        stop = asyncio.Event()
        listening = asyncio.create_task(
            server.listen("127.0.0.1", 0, stop=stop, ready=address.set_result)
        )
        try:
            async with httpx.AsyncClient(base_url=await address, timeout=60) as client:
                return await scenario(client)
        finally:
            stop.set()
            await listening

    return asyncio.run(run())


def ask(client, **fields):
    return client.post("/v1/completions", json={"temperature": 0, "max_tokens": 4} | fields)


def test_a_text_that_fails_is_an_error_of_its_own_request_and_others_are_answered(decoder, capsys):
    async def scenario(client):
        together = [ask(client, prompt=prompt) for prompt in ([1], [0], [2], [[3], [0]])]
        answers = await asyncio.gather(*together)
        return [*answers, await ask(client, prompt=[1])], (await client.get("/metrics")).text

    answers, metrics = serve(decoder, scenario)
    assert [answer.status_code for answer in answers] == [200, 500, 200, 500, 200]
    assert answers[0].json()["choices"] == answers[-1].json()["choices"]
    assert answers[1].json()["error"]["type"] == "server_error"
    assert "could not be written" in answers[1].json()["error"]["message"]
    assert (
        "labkit_failed 2\n" in metrics
        and "labkit_writing 0\n" in metrics
        and "labkit_waiting 0\n" in metrics
    )
    assert "not enough memory" in capsys.readouterr().err, "who runs the server sees the reason"


def test_a_stream_that_fails_ends_with_an_event_that_clients_take_for_an_error(decoder):
    decoder.fails_at = 4

    async def scenario(client):
        stream = await ask(client, prompt=[1], max_tokens=20, stream=True)
        return stream, await ask(client, prompt=[1])

    stream, later = serve(decoder, scenario)
    events = [line.removeprefix("data: ") for line in stream.text.splitlines() if line]
    assert events[-1] == "[DONE]"
    *chunks, error = map(json.loads, events[:-1])
    assert len(chunks) == 3 and all(
        chunk["choices"][0]["finish_reason"] is None for chunk in chunks
    )
    assert error["error"]["message"]
    assert later.status_code == 200


def test_a_decoder_of_short_texts_says_how_much_room_there_is(decoder):
    async def scenario(client):
        bodies = [
            {"prompt": "x" * 40},
            {"prompt": "x" * 39, "max_tokens": 2},
            {"prompt": "x" * 39, "max_tokens": None},
        ]
        return [await ask(client, **body) for body in bodies]

    long, full, fits = serve(decoder, scenario)
    assert "1 to 39 are allowed" in long.json()["error"]["message"]
    assert full.json()["error"]["message"] == "max_tokens has to be 1"
    assert fits.json()["usage"] == {"prompt_tokens": 39, "completion_tokens": 1, "total_tokens": 40}
