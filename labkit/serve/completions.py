"""POST /v1/completions: texts that go on, in one piece or as server-sent events, in the form of the
OpenAI package.

A token is a byte. A text that ends with one of its stops is answered without it.
"""

import asyncio
import codecs
import json
import time
import uuid

from tornado.iostream import StreamClosedError

from labkit.serve.handlers import Handler, error_body
from labkit.serve.parsing import Refused, parsed

# Messages to a handler that waits for tokens.
GONE = object()  # the client has gone
ENDING = object()  # the server is ending
FAILED = "the text could not be written; who runs the server finds the reason on its screen"


class Completions(Handler):
    """Texts that go on; each is a choice of the answer."""

    requests = ()  # of the scheduler, that are being answered

    async def post(self):
        self.completion = parsed(self.request, self.server)
        self.requests = self.completion.requests
        self.header = {
            "id": f"cmpl-{uuid.uuid4().hex}",
            "object": "text_completion",
            "created": int(time.time()),
            "model": self.server.name,
        }
        self.texts = {
            request: Text(request, echo=self.completion.echo) for request in self.requests
        }
        inbox = self.server.admit(self.requests)
        try:
            await self._answer(inbox)
        except (TimeoutError, StreamClosedError):
            self.request.connection.stream.close()  # it has gone, or does not read
        finally:
            self.server.leave(self.requests)

    async def _answer(self, inbox):
        """Wait for tokens until the answer is whole; a stream passes them on."""
        pieces = dict.fromkeys(self.requests, "")
        unfinished = len(pieces)
        streams = self.completion.stream
        begun = False  # the status of an answer is sent with its first event
        while unfinished:
            message = await inbox.get()
            if message is GONE:
                return
            if message is ENDING and begun:  # too late for an error: the stream breaks off
                raise StreamClosedError
            if message is ENDING:
                raise Refused(503, "the server is ending")

            # What is new in one of the texts.
            request, answered, ended = message
            if ended == "failed" and not begun:
                raise Refused(500, FAILED)
            if ended == "failed":
                await self._send(error_body(500, FAILED), last=True)
                return
            piece = self.texts[request].next(answered, ended)
            unfinished -= ended is not None
            if piece is not None and streams:
                await self._send_choice(request, piece, ended)
                begun = True
            pieces[request] += piece or ""
        await self._finish(pieces)

    async def _finish(self, pieces):
        """Send {request: its text} in one piece; of a stream, what comes after the last token."""
        if not self.completion.stream:
            choices = [
                self._choice(request, text, request.ended) for request, text in pieces.items()
            ]
            self.write(self.header | {"choices": choices, "usage": self._usage()})
            return
        if self.completion.with_usage:
            await self._send(self.header | {"choices": [], "usage": self._usage()})
        await self._send(None, last=True)

    async def _send_choice(self, request, piece, ended):
        """Send an event with more of a text."""
        event = self.header | {"choices": [self._choice(request, piece, ended)]}
        if self.completion.with_usage:
            event["usage"] = None
        await self._send(event)

    async def _send(self, event, *, last=False):
        """Send an event; a client that does not read in time is left (TimeoutError).

        last  the stream ends behind it
        """
        self.set_header("Content-Type", "text/event-stream; charset=utf-8")
        if event is not None:
            self.write(f"data: {json.dumps(event)}\n\n")
        if last:
            self.write("data: [DONE]\n\n")
        await asyncio.wait_for(self.flush(), self.server.limits.patience_s)

    def _choice(self, request, text, ended):
        return {
            "index": self.requests.index(request),
            "text": text,
            "logprobs": None,
            "finish_reason": ended,
        }

    def _usage(self):
        prompt_tokens = self.completion.prompt_tokens
        completion_tokens = sum(len(request.tokens) for request in self.requests)
        return {
            "prompt_tokens": prompt_tokens,
            "completion_tokens": completion_tokens,
            "total_tokens": prompt_tokens + completion_tokens,
        }

    def on_connection_close(self):
        if self.requests and self.requests[0] in self.server.inboxes:
            self.server.inboxes[self.requests[0]].put_nowait(GONE)
            self.server.leave(self.requests)


class Text:
    """What a client has been sent of a text."""

    def __init__(self, request, *, echo):
        self.request = request
        self.sent = 0  # tokens of the answer
        self.before = request.prompt if echo else []  # tokens that come first
        # a character may be several tokens
        self.decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def next(self, answered, ended):
        """Return the characters up to token `answered`; None where there is neither a new token
        nor an end.
        """
        if answered == self.sent and not ended:
            return None
        tokens = [*self.before, *self.request.tokens[self.sent : answered]]
        self.sent = answered
        self.before = []
        return self.decoder.decode(bytes(tokens), final=ended is not None)
