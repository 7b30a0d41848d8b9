"""Serve one decoder over HTTP, with continuous batching.

The event loop answers the clients. A second thread runs the turns of the scheduler, one after the
other.

POST /v1/completions  continue texts: {"prompt", "max_tokens", "temperature", ...}, as OpenAI's
                      Python package sends them
GET /v1/models        the one model that is served
GET /health           {"status": "ok", "model": its name}
GET /metrics          counts of requests, tokens and turns, one per line
"""

import asyncio
import time
from dataclasses import dataclass

from tornado import web
from tornado.httpserver import HTTPServer
from tornado.netutil import bind_sockets

from labkit import device
from labkit.errors import LabError
from labkit.serve.completions import ENDING, Completions
from labkit.serve.handlers import Health, Metrics, Models, Nothing
from labkit.serve.parsing import Refused
from labkit.serve.scheduler import Scheduler, Writer

LOOPBACK = ("127.0.0.1", "localhost", "::1")
BODY_BYTES = 2**16


@dataclass(frozen=True, kw_only=True)
class Limits:
    """The limits of a server.

    rows        largest number of texts that are written at once
    waiting     largest number of requests that may wait; further ones are refused with status 429
    prompt      largest number of tokens of a prompt
    count       largest number of tokens of an answer
    patience_s  seconds that a client may take to send its request, or to read an answer
    """

    rows: int = 16
    waiting: int = 64
    prompt: int = 512
    count: int = 256
    patience_s: float = 10.0


class Server:
    """A server of one decoder for many users.

    name    name of the model, for clients
    limits  the `Limits`
    token   a secret that clients have to send as `Authorization: Bearer TOKEN`. None: no token is
            needed, and the server listens on the loopback address only
    """

    def __init__(self, decoder, *, name, limits, token):
        self.name = name
        self.limits = limits
        self.token = token
        self.created = int(time.time())  # s
        self.longest = min(decoder.longest, self.limits.prompt + self.limits.count)
        self.scheduler = Scheduler(Writer(decoder, self.limits.rows, self.longest))
        self.inboxes = {}  # {Request: queue of messages}
        self.submitted = []  # requests that the scheduler does not have yet
        self.hosts = ()  # values of the header Host that are answered
        self.counts = dict.fromkeys(
            ("requests", "refused", "finished", "failed", "gone", "tokens", "turns"), 0
        )

    async def listen(self, host, port, *, stop, ready=lambda address: None):
        """Serve until the event `stop` is set, or until a turn raises.

        host, port  address to listen on; port 0: any free port
        ready       function that is called with the server's address once it serves
        Raises      LabError for another host than this machine if there is no token; the error of a
                    turn
        """
        if host not in LOOPBACK and not self.token:
            raise LabError(
                f"Without a token the server does not listen on {host}.",
                expected="127.0.0.1, or a token that clients send",
                found=host,
                fix="set LABKIT_SERVE_TOKEN",
            )
        sockets = bind_sockets(port, host)  # several addresses, the same port
        port = sockets[0].getsockname()[1]
        self.hosts = tuple(f"{'[::1]' if name == '::1' else name}:{port}" for name in LOOPBACK)
        http = self._http_server()
        http.add_sockets(sockets)

        # Do turns until one fails, or until the end is wanted.
        self.new = asyncio.Event()
        with device.pool(1) as executor:
            work = asyncio.create_task(self._work(executor))
            ending = asyncio.create_task(stop.wait())
            ready(f"http://{self.hosts[0] if host in LOOPBACK else f'{host}:{port}'}")
            await asyncio.wait({work, ending}, return_when=asyncio.FIRST_COMPLETED)
            http.stop()

            # Tell everybody who waits, and close.
            for task in (work, ending):
                task.cancel()
            for inbox in set(self.inboxes.values()):
                inbox.put_nowait(ENDING)
            await asyncio.gather(work, ending, return_exceptions=True)
            await http.close_all_connections()
        if not stop.is_set():
            work.result()  # raises what ended the turns

    def _http_server(self):
        """Return tornado's HTTP server with all handlers, before it listens on an address."""
        arguments = {"server": self}
        application = web.Application(
            [
                ("/v1/completions", Completions, arguments),
                ("/v1/models", Models, arguments),
                ("/v1/models/(.+)", Models, arguments),
                ("/health", Health, arguments),
                ("/metrics", Metrics, arguments),
            ],
            default_handler_class=Nothing,
            default_handler_args=arguments,
            log_function=lambda handler: None,
        )
        return HTTPServer(
            application,
            max_body_size=BODY_BYTES,
            max_buffer_size=2 * BODY_BYTES,
            idle_connection_timeout=self.limits.patience_s,
            body_timeout=self.limits.patience_s,
        )

    async def _work(self, executor):
        """Run turns for ever, and put the results of each turn into the inboxes (`admit`).

        executor  pool with the thread in which turns run
        """
        while True:
            if not self.scheduler.busy() and not self.submitted:
                self.new.clear()
                await self.new.wait()
            # only between turns may this thread change the scheduler: turns run in another thread
            while self.submitted:
                self.scheduler.add(self.submitted.pop(0))
            changed = await asyncio.get_running_loop().run_in_executor(
                executor, self.scheduler.turn
            )
            self.counts["turns"] += 1
            self.counts["tokens"] += sum(request.ended != "failed" for request in changed)
            for request in changed:
                if request in self.inboxes:
                    self.inboxes[request].put_nowait((request, request.answered, request.ended))

    def admit(self, requests):
        """Queue the requests of one client, and return the client's inbox.

        The inbox is an asyncio queue. After a turn that changed a request of the client, the inbox
        gets (request, number of tokens of its answer so far, why it ended or None). It gets GONE
        when the client leaves, and ENDING when the server ends.

        Raises  Refused (429) where too many requests wait
        """
        waiting = len(self.scheduler.waiting) + len(self.submitted)
        if waiting + len(requests) > self.limits.waiting:
            raise Refused(
                429, f"{waiting} of {self.limits.waiting} places to wait are taken; come back later"
            )
        inbox = asyncio.Queue()
        for request in requests:
            self.inboxes[request] = inbox
            self.submitted.append(request)
        self.counts["requests"] += len(requests)
        self.new.set()
        return inbox

    def leave(self, requests):
        """Forget the requests of a client, and count how they ended.

        A request that has not ended yet gets `ended` "gone", so the scheduler removes it.
        """
        for request in requests:
            if self.inboxes.pop(request, None) is not None:
                outcome = {None: "gone", "failed": "failed"}.get(request.ended, "finished")
                self.counts[outcome] += 1
            request.ended = request.ended or "gone"
