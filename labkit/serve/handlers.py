"""What all answers of the server have in common, and the short ones: what is served, how it is,
what it has done.

server  of each handler: the `Server`
"""

import hmac

from tornado import web

from labkit.serve.parsing import Refused


class Handler(web.RequestHandler):
    """What all answers have in common: who may ask, and errors as JSON."""

    def initialize(self, server):
        self.server = server

    def prepare(self):
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
        self.server.counts["refused"] += status < 500  # a server that ends (503) refuses nobody
        _, error, _ = arguments.get("exc_info", (None, None, None))
        self.finish(error_body(status, getattr(error, "in_words", self._reason)))

    def set_default_headers(self):
        self.clear_header("Server")
        self.set_header("Cache-Control", "no-store")


def error_body(status, message):
    """Return what an answer says about an error, as clients know it."""
    kind = "server_error" if status >= 500 else "invalid_request_error"
    return {"error": {"message": message, "type": kind, "param": None, "code": status}}


class Nothing(Handler):
    """Refuses all other addresses."""

    def prepare(self):
        super().prepare()
        words = "there is POST /v1/completions, GET /v1/models, GET /health and GET /metrics"
        if self.request.path == "/v1/chat/completions":
            words = f"this network was trained on texts, not on conversations: {words}"
        raise Refused(404, words)


class Models(Handler):
    """The list of the one model there is, or that model by its name."""

    def get(self, name=None):
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
    def get(self):
        self.write({"status": "ok", "model": self.server.name})


class Metrics(Handler):
    def get(self):
        scheduler = self.server.scheduler
        counts = self.server.counts | {
            "waiting": len(scheduler.waiting) + len(self.server.coming),
            "writing": len(scheduler.writing),
        }
        self.set_header("Content-Type", "text/plain; charset=utf-8")
        self.write("".join(f"labkit_{name} {count}\n" for name, count in counts.items()))
