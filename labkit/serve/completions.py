"""Answer POST /v1/completions in the format of OpenAI's Python package.

The answer is JSON, or a stream of server-sent events. A token is a byte. A text ends before the
first stop, which is a text given by the client; the stop is no part of the answer.
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
    """Continue each prompt of a POST /v1/completions by one text or several.

    Each of these texts is a choice in the answer, as OpenAI's package calls it.
    """

    requests = ()  # of the scheduler, which this handler answers

    async def post(self):
        """Parse the HTTP request, submit its texts to the scheduler, and send the answer."""
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
            self.request.connection.stream.close()  # the client has gone, or does not read
        finally:
            self.server.leave(self.requests)

    async def _answer(self, inbox):
        """Wait until all texts are finished, and send the answer.

        In a stream each new piece of a text is sent as soon as it is there.

        inbox   the queue that `Server.admit` returned
        Raises  Refused if a text failed or the server ends before anything was sent;
                StreamClosedError if the server ends in the middle of a stream
        """
        pieces = dict.fromkeys(self.requests, "")
        unfinished = len(pieces)
        streams = self.completion.stream
        begun = False  # whether a first event was sent, and with it the status 200
        while unfinished:
            message = await inbox.get()
            if message is GONE:
                return
            if message is ENDING and begun:  # too late for an error: the stream breaks off
                raise StreamClosedError
            if message is ENDING:
                raise Refused(503, "the server is ending")

            # The message is on one of the texts: its tokens so far, or its end.
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
        """Send the whole answer, or the end of a stream.

        pieces  {`Request`: its whole text}
        """
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
        """Send an event with the next piece of a text.

        request  the `Request` of the text
        piece    the new characters
        ended    why the text has ended ("length" or "stop"), or None if it goes on
        """
        event = self.header | {"choices": [self._choice(request, piece, ended)]}
        if self.completion.with_usage:
            event["usage"] = None
        await self._send(event)

    async def _send(self, event, *, last=False):
        """Send an event of a stream to the client.

        event   a dict, sent as JSON; None: no event
        last    True: send "[DONE]" after the event, which ends the stream
        Raises  TimeoutError for a client that does not read within `patience_s` of the limits
        """
        self.set_header("Content-Type", "text/event-stream; charset=utf-8")
        if event is not None:
            self.write(f"data: {json.dumps(event)}\n\n")
        if last:
            self.write("data: [DONE]\n\n")
        await asyncio.wait_for(self.flush(), self.server.limits.patience_s)

    def _choice(self, request, text, ended):
        """Return a text as an item of "choices" in the answer, a dict in OpenAI's format.

        text   the characters of the text, in a stream only the new ones
        ended  why the text has ended, or None
        """
        return {
            "index": self.requests.index(request),
            "text": text,
            "logprobs": None,
            "finish_reason": ended,
        }

    def _usage(self):
        """Return the numbers of tokens of prompts and texts, as a dict in OpenAI's format."""
        prompt_tokens = self.completion.prompt_tokens
        completion_tokens = sum(len(request.tokens) for request in self.requests)
        return {
            "prompt_tokens": prompt_tokens,
            "completion_tokens": completion_tokens,
            "total_tokens": prompt_tokens + completion_tokens,
        }

    def on_connection_close(self):
        """Tell `post`, which waits for tokens, that its client has gone.

        Tornado calls this when the connection closes.
        """
        if self.requests and self.requests[0] in self.server.inboxes:
            self.server.inboxes[self.requests[0]].put_nowait(GONE)
            self.server.leave(self.requests)


class Text:
    """Decode the tokens of a `Request` piece by piece, as they are sent to the client.

    echo  True: the text begins with the prompt
    """

    def __init__(self, request, *, echo):
        self.request = request
        self.sent = 0  # number of tokens of the answer that were sent
        self.unsent_prompt = request.prompt if echo else []  # sent with the first piece
        # a character may be several tokens: the decoder keeps an incomplete one
        self.decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def next(self, answered, ended):
        """Return the new characters of the text; None without a new token or the end of the text.

        A character may be several tokens. An incomplete one is held back until its last token
        comes, or the text ends.

        answered  number of tokens of the answer so far
        ended     why the text has ended, or None
        """
        if answered == self.sent and not ended:
            return None
        tokens = [*self.unsent_prompt, *self.request.tokens[self.sent : answered]]
        self.sent = answered
        self.unsent_prompt = []
        return self.decoder.decode(bytes(tokens), final=ended is not None)
