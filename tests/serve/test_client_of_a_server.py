"""The client that loads a server: it counts the tokens of a streamed answer."""

import asyncio

import pytest

from labkit.serve.load import _send_one

ANSWER = b'data: {"text": "a"}\n\ndata: {"text": "b"}\n\ndata: {"text": "c"}\n\ndata: [DONE]\n\n'


class Client:
    """Streams an answer in pieces of so many bytes, as a network may cut it anywhere."""

    def __init__(self, size):
        self.pieces = [ANSWER[at : at + size] for at in range(0, len(ANSWER), size)]

    async def fetch(self, url, *, streaming_callback, **options):
        for piece in self.pieces:
            streaming_callback(piece)


@pytest.mark.parametrize("size", [1, 3, 7, 8, 20, len(ANSWER)])
def test_each_token_is_counted_once_wherever_the_network_cuts_the_answer(size):
    answer = asyncio.run(_send_one(Client(size), "http://here", {"at": 0.0}, start=0.0))
    assert answer["error"] is None
    assert len(answer["times"]) == 3
