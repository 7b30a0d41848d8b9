"""The server: HTTP outside, continuous batching inside. It does one turn after the other beside the event loop.

POST /v1/completions  {"prompt", "max_tokens", "temperature", "seed", "stop", "stream"}, as clients know it
GET  /health          {"status": "ok"}
GET  /metrics         requests, tokens and turns, a line each
"""

import asyncio
import codecs
import hmac
import json
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from tornado import web
from tornado.httpserver import HTTPServer
from tornado.iostream import StreamClosedError
from tornado.netutil import bind_sockets

from labkit.errors import LabError
from labkit.serve.scheduler import Request, Scheduler, Writer

LOOPBACK = ("127.0.0.1", "localhost", "::1")
BODY_BYTES = 2**16
GONE, ENDING = object(), object()  # messages to the one who waits for tokens: no client any more, no server any more
FIELDS = {"prompt", "max_tokens", "temperature", "seed", "stop", "stream", "model", "n"}


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What a server lets in.

    rows       texts that are written at once
    waiting    requests that may wait; more are turned away with 429
    prompt     most tokens of a prompt
    count      most tokens of an answer
    patience_s how long a client may take to send its request, or to read what it is sent
    """

    rows: int = 16
    waiting: int = 64
    prompt: int = 512
    count: int = 256
    patience_s: float = 10.0


class Refused(web.HTTPError):
    """A request that is answered with an error: its status and its reason."""

    def __init__(self, status, reason):
        super().__init__(status, reason=reason)


class Server:
    """One decoder, many users.

    token  what a client has to send as `Authorization: Bearer TOKEN`; None: none is asked for, on the loopback address
    """

    def __init__(self, decoder, *, name, limits, token):
        self.name, self.limits, self.token = name, limits, token
        self.longest = min(decoder.longest, self.limits.prompt + self.limits.count)
        self.scheduler = Scheduler(Writer(decoder, self.limits.rows, self.longest))
        self.inboxes, self.coming, self.hosts = {}, [], ()
        self.counts = dict.fromkeys(("requests", "refused", "finished", "gone", "tokens", "turns"), 0)

    async def listen(self, host, port, *, stop, ready=lambda address: None):
        """Serve until the event `stop` is set; `ready` is told the address."""
        if host not in LOOPBACK and not self.token:
            what, fix = f"Without a token the server does not listen on {host}.", "set LABKIT_SERVE_TOKEN"
            raise LabError(what, expected="127.0.0.1, or a token that clients send", found=host, fix=fix)
        sockets = bind_sockets(port, host)  # all of one port
        port = sockets[0].getsockname()[1]
        self.hosts = tuple(f"{'[::1]' if each == '::1' else each}:{port}" for each in LOOPBACK)
        paths = [("/v1/completions", Completions), ("/health", Health), ("/metrics", Metrics)]
        application = web.Application(
            [(path, handler, {"server": self}) for path, handler in paths],
            default_handler_class=Nothing, default_handler_args={"server": self}, log_function=lambda handler: None,
        )  # fmt: skip
        how = {"idle_connection_timeout": self.limits.patience_s, "body_timeout": self.limits.patience_s}
        http = HTTPServer(application, max_body_size=BODY_BYTES, max_buffer_size=2 * BODY_BYTES, **how)
        http.add_sockets(sockets)
        self.new = asyncio.Event()
        with ThreadPoolExecutor(1) as executor:
            work = asyncio.create_task(self._work(executor))
            ending = asyncio.create_task(stop.wait())
            ready(f"http://{self.hosts[0] if host in LOOPBACK else f'{host}:{port}'}")
            await asyncio.wait({work, ending}, return_when=asyncio.FIRST_COMPLETED)
            http.stop()
            for task in (work, ending):
                task.cancel()
            for inbox in self.inboxes.values():
                inbox.put_nowait(ENDING)
            await asyncio.gather(work, ending, return_exceptions=True)
            await http.close_all_connections()
        if not stop.is_set():
            work.result()  # what ended it

    async def _work(self, executor):
        """Do the turns, one after the other; in between, hand out what is new."""
        while True:
            if not self.scheduler.busy() and not self.coming:
                self.new.clear()
                await self.new.wait()
            while self.coming:  # the scheduler is touched between turns only: a turn is another thread's
                self.scheduler.add(self.coming.pop(0))
            changed = await asyncio.get_running_loop().run_in_executor(executor, self.scheduler.turn)
            self.counts["turns"] += 1
            self.counts["tokens"] += sum(bool(each.tokens) for each in changed)
            for request in changed:
                if request in self.inboxes:
                    self.inboxes[request].put_nowait((len(request.tokens), request.ended))

    def admit(self, request):
        """Queue a request: its inbox, which gets (tokens so far, why it ended or None), GONE or ENDING."""
        if len(self.scheduler.waiting) + len(self.coming) >= self.limits.waiting:
            raise Refused(429, f"{self.limits.waiting} requests are waiting already; come back later")
        inbox = self.inboxes[request] = asyncio.Queue()
        self.coming.append(request)
        self.counts["requests"] += 1
        self.new.set()
        return inbox

    def leave(self, request):
        """A request is answered, or its client has gone."""
        if self.inboxes.pop(request, None) is not None:
            self.counts["finished" if request.ended else "gone"] += 1
        request.ended = request.ended or "gone"


class Handler(web.RequestHandler):
    """What all answers have in common: who may ask, and errors as JSON."""

    def initialize(self, server):
        self.server = server

    def prepare(self):
        headers, server = self.request.headers, self.server
        if server.token:
            given = headers.get("Authorization", "")
            if not hmac.compare_digest(given.encode(), f"Bearer {server.token}".encode()):
                raise Refused(401, "send the header Authorization: Bearer TOKEN")
        elif headers.get("Host", "").lower() not in server.hosts:
            raise Refused(403, f"the header Host is none of {', '.join(server.hosts)}")
        origin = headers.get("Origin")
        if origin is not None and origin != f"http://{headers.get('Host')}":
            raise Refused(403, "pages of other origins are not answered")

    def write_error(self, status, **_):
        self.server.counts["refused"] += status < 500  # a server that ends (503) refuses nobody
        kind = "server_error" if status >= 500 else "invalid_request_error"
        self.finish({"error": {"message": self._reason, "type": kind, "code": status}})

    def set_default_headers(self):
        self.clear_header("Server")
        self.set_header("Cache-Control", "no-store")


class Nothing(Handler):
    def prepare(self):
        super().prepare()
        raise Refused(404, "there is POST /v1/completions, GET /health and GET /metrics")


class Health(Handler):
    def get(self):
        self.write({"status": "ok", "model": self.server.name})


class Metrics(Handler):
    def get(self):
        scheduler = self.server.scheduler
        now = {"waiting": len(scheduler.waiting) + len(self.server.coming), "writing": len(scheduler.writing)}
        self.set_header("Content-Type", "text/plain; charset=utf-8")
        self.write("".join(f"labkit_{name} {value}\n" for name, value in (self.server.counts | now).items()))


class Completions(Handler):
    """A text that goes on: in one piece, or as server-sent events."""

    asked = None

    async def post(self):
        request, streams = parsed(self.request, self.server)
        self.asked, self.characters = request, codecs.getincrementaldecoder("utf-8")("replace")
        begin, inbox, sent = time.time(), self.server.admit(request), 0
        try:
            while True:
                message = await inbox.get()
                if message is GONE:
                    return
                if message is ENDING and sent:  # too late for an error: the stream breaks off
                    raise StreamClosedError
                if message is ENDING:
                    raise Refused(503, "the server is ending")
                known, ended = message
                if streams:
                    await self._send(request.tokens[sent:known], ended, begin)
                    sent = known
                if ended:
                    break
            if not streams:
                given, written = len(request.prompt), len(request.tokens)
                usage = {"prompt_tokens": given, "completion_tokens": written, "total_tokens": given + written}
                self.write(self._answer(request.tokens, request.ended, begin) | {"usage": usage})
        except (TimeoutError, StreamClosedError):
            self.request.connection.stream.close()  # it has gone, or does not read
        finally:
            self.server.leave(request)

    async def _send(self, tokens, ended, begin):
        """One event; a client that does not read what it is sent is left when its patience is over."""
        self.set_header("Content-Type", "text/event-stream; charset=utf-8")
        self.write(f"data: {json.dumps(self._answer(tokens, ended, begin))}\n\n" + "data: [DONE]\n\n" * bool(ended))
        await asyncio.wait_for(self.flush(), self.server.limits.patience_s)

    def _answer(self, tokens, ended, begin):
        text = self.characters.decode(bytes(tokens), final=ended is not None)  # a character may be several tokens
        choice = {"index": 0, "text": text, "finish_reason": ended}
        return {"object": "text_completion", "created": int(begin), "model": self.server.name, "choices": [choice]}

    def on_connection_close(self):
        if self.asked in self.server.inboxes:
            self.server.inboxes[self.asked].put_nowait(GONE)
            self.server.leave(self.asked)


def parsed(message, server):
    """(Request, whether to stream) of an HTTP request. Raises Refused."""
    if message.headers.get("Content-Type", "").split(";")[0].strip().lower() != "application/json":
        raise Refused(415, "send JSON, with the header Content-Type: application/json")
    try:
        body = json.loads(message.body.decode())
    except (ValueError, RecursionError):
        raise Refused(400, "the body is not JSON") from None
    if not isinstance(body, dict) or set(body) - FIELDS:
        raise Refused(400, f"the body has to be an object of {', '.join(sorted(FIELDS))}")
    limits, prompt, stop = server.limits, body.get("prompt"), body.get("stop")
    try:
        tokens = list(prompt.encode())
        ending = None if stop is None else stop.encode()
    except (AttributeError, UnicodeEncodeError):
        raise Refused(400, "prompt has to be a string, stop a string of one byte or null") from None
    if not 1 <= len(tokens) <= limits.prompt:
        raise Refused(400, f"prompt has {len(tokens)} bytes; 1 to {limits.prompt} are allowed")
    if ending is not None and len(ending) != 1:
        raise Refused(400, "stop has to be a string of one byte, or null")
    count = number(body, "max_tokens", 16, (1, min(limits.count, server.longest - len(tokens))), int)
    temperature = number(body, "temperature", 1.0, (0, 10), (int, float))
    seed = number(body, "seed", time.time_ns() % 2**31, (0, 2**63 - 1), int)
    number(body, "n", 1, (1, 1), int)
    if not isinstance(body.get("stream", False), bool) or not isinstance(body.get("model", ""), str):
        raise Refused(400, "stream has to be true or false, model a string")
    ending = ending and ending[0]
    request = Request(prompt=tokens, count=count, temperature=temperature, seed=seed, stop=ending)
    return request, body.get("stream", False)


def number(body, name, default, between, kind):
    """A number of the body, within limits; NaN is in none."""
    value, (low, high) = body.get(name, default), between
    if isinstance(value, bool) or not isinstance(value, kind) or not low <= value <= high:
        raise Refused(400, f"{name} has to be a number from {low} to {high}")
    return value
