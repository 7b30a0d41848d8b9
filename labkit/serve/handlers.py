"""Define the base class of all HTTP handlers, and the handlers of models, health and metrics.

A handler answers one HTTP request. Each has the attribute `server`, the `Server`.
"""

import hmac

from tornado import web

from labkit.serve.parsing import Refused


class Handler(web.RequestHandler):
    """Base class of all handlers: it checks who may ask, and answers errors as JSON."""

    def initialize(self, server):
        """Store the `Server`, which tornado passes on to each handler."""
        self.server = server

    def prepare(self):
        """Check the headers before the request is answered; tornado calls this.

        Raises  Refused for a wrong token, for an unknown Host header where no token is needed, and
                for a request from a web page of another origin
        """
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
        """Send an error as JSON to the client, and count it as refused if it is the client's."""
        self.server.counts["refused"] += status < 500  # 503, of a server that ends, is no refusal
        _, error, _ = arguments.get("exc_info", (None, None, None))
        self.finish(error_body(status, getattr(error, "in_words", self._reason)))

    def set_default_headers(self):
        self.clear_header("Server")
        self.set_header("Cache-Control", "no-store")


def error_body(status, message):
    """Return the JSON body of an error as a dict, in OpenAI's format.

    status   HTTP status
    message  a sentence for the client
    """
    kind = "server_error" if status >= 500 else "invalid_request_error"
    return {"error": {"message": message, "type": kind, "param": None, "code": status}}


class Nothing(Handler):
    """Refuse addresses that no other handler has, with status 404."""

    def prepare(self):
        super().prepare()
        words = "there is POST /v1/completions, GET /v1/models, GET /health and GET /metrics"
        if self.request.path == "/v1/chat/completions":
            words = f"this network was trained on texts, not on conversations: {words}"
        raise Refused(404, words)


class Models(Handler):
    """Answer with the list of models, or with one model; this server has exactly one."""

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
    """Answer GET /health with the status "ok" and the name of the model."""

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
