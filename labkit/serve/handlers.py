"""Define the base class of all handlers, and the handlers of models, health and metrics.

Each handler has `server`, the `Server`.
"""

import hmac

from tornado import web

from labkit.serve.parsing import Refused


class Handler(web.RequestHandler):
    """Base class of all handlers: checks who may ask, and answers errors as JSON."""

    def initialize(self, server):
        """Keep the `Server`; tornado calls this with the arguments of the route."""
        self.server = server

    def prepare(self):
        """Raise Refused for a wrong token, a foreign Host header, or a page of another origin."""
        headers = self.request.headers
        server = self.server
        if server.token:
            authorization = headers.get("Authorization", "")
            if not hmac.compare_digest(authorization.encode(), f"Bearer {server.token}".encode()):
                raise Refused(401, "send the header Authorization: Bearer TOKEN")
        elif headers.get("Host", "").lower() not in server.hosts:
            raise Refused(403, f"the header Host is none of {', '.join(server.hosts)}")
        origin = headers.get("Origin")
        if origin is not None and origin != f"http://{headers.get('Host')}":
            raise Refused(403, "pages of other origins are not answered")

    def write_error(self, status, **arguments):
        """Answer an error as JSON, and count it."""
        self.server.counts["refused"] += status < 500  # 503, of a server that ends, is no refusal
        _, error, _ = arguments.get("exc_info", (None, None, None))
        self.finish(error_body(status, getattr(error, "in_words", self._reason)))

    def set_default_headers(self):
        self.clear_header("Server")
        self.set_header("Cache-Control", "no-store")


def error_body(status, message):
    """Return the JSON body of an error as a dict, in the form of the OpenAI package."""
    kind = "server_error" if status >= 500 else "invalid_request_error"
    return {"error": {"message": message, "type": kind, "param": None, "code": status}}


class Nothing(Handler):
    """Refuse all other addresses with 404."""

    def prepare(self):
        super().prepare()
        words = "there is POST /v1/completions, GET /v1/models, GET /health and GET /metrics"
        if self.request.path == "/v1/chat/completions":
            words = f"this network was trained on texts, not on conversations: {words}"
        raise Refused(404, words)


class Models(Handler):
    """Answer with the list of models, which has one entry, or with that model by its name."""

    def get(self, name=None):
        """Answer GET /v1/models, or GET /v1/models/NAME."""
        server = self.server
        model = {
            "id": server.name,
            "object": "model",
            "created": server.created,
            "owned_by": "labkit",
        }
        if name is None:
            self.write({"object": "list", "data": [model]})
        elif name == server.name:
            self.write(model)
        else:
            raise Refused(404, f"the model here is {server.name}")


class Health(Handler):
    """Answer GET /health: the server runs."""

    def get(self):
        self.write({"status": "ok", "model": self.server.name})


class Metrics(Handler):
    """Answer GET /metrics: counts of requests, tokens and turns."""

    def get(self):
        scheduler = self.server.scheduler
        counts = self.server.counts | {
            "waiting": len(scheduler.waiting) + len(self.server.submitted),
            "writing": len(scheduler.writing),
        }
        self.set_header("Content-Type", "text/plain; charset=utf-8")
        self.write("".join(f"labkit_{name} {count}\n" for name, count in counts.items()))
