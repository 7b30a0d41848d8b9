"""The page on this machine's loopback, for a browser tab: one address nobody can guess, and nothing else behind it."""

import hmac
import html
import os
import secrets
import sys
import threading
import time
import webbrowser
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from labkit.errors import LabError
from labkit.lesson.netron_view import graph
from labkit.lesson.netron_view.pages import POLICY, page

WHOLE = 256 * 2**20  # bytes; a model up to this size is shown with all its weights
LARGE_MODEL = 2**20  # bytes a tensor, in a model above it
NAMES = ("127.0.0.1", "localhost")
HEAD = '<!doctype html><meta charset="utf-8"><link rel="icon" href="data:,"><title>{}</title><body style="margin:0">'


def whole_page(path, *others):
    """The models side by side as one page that needs no server: bytes to serve or to keep as a file.

    Raises  LabError for a file that is not an ONNX model; Unavailable without netron
    """
    graphs = [graph.read(name, largest_tensor=limit(name)) for name in (path, *others)]
    title = html.escape(" · ".join(one.name for one in graphs))
    return (HEAD.format(title) + page(graphs)).encode("utf-8")


def limit(path):
    """The largest tensor to keep, in bytes."""
    path = Path(path)
    return WHOLE if path.is_file() and path.stat().st_size <= WHOLE else LARGE_MODEL


@contextmanager
def serve(path, *others, port=0, idle_seconds=1800):
    """Serve the models side by side while the block runs; yields a `Server` with its `.url`.

    port          0 for any free one
    idle_seconds  it ends by itself when nobody asked for the page so long; an open page needs it no more
    Raises        LabError for a file that is not an ONNX model or a port in use; Unavailable without netron
    """
    content = whole_page(path, *others)
    try:
        server = Server(content, port, idle_seconds)
    except OSError as error:
        raise LabError(
            f"Port {port} cannot be used.", found=error, fix="leave --port out to take a free one"
        ) from error
    server.thread.start()
    try:
        yield server
    finally:
        server.ended.set()
        server.thread.join()


def open_tab(url):
    """Open a browser tab where there is a display; elsewhere a browser of the terminal would take its place."""
    if sys.platform in ("darwin", "win32") or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"):
        webbrowser.open_new_tab(url)


class Server(ThreadingHTTPServer):
    """Hands out one page, from memory. It knows no files, so there is nothing to climb out of."""

    def __init__(self, content, port, idle_seconds):
        super().__init__(("127.0.0.1", port), Handler)
        self.content = content
        self.path = f"/{secrets.token_urlsafe(24)}/"
        self.port = self.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}{self.path}"
        self.asked = time.monotonic()  # when the page was last asked for
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self.run, args=[idle_seconds], daemon=True)  # ends with the kernel

    def run(self, idle_seconds):
        """Answer until told to end, or until nobody asked for the page so long."""
        self.timeout = 0.2
        while not self.ended.is_set() and time.monotonic() - self.asked < idle_seconds:
            self.handle_request()
        self.ended.set()
        self.server_close()


class Handler(BaseHTTPRequestHandler):
    """GET of the secret path, under a name of this machine; anything else is refused."""

    server_version, sys_version = "labkit", ""
    timeout = 10  # seconds for a request to arrive

    def do_GET(self):
        if self.headers.get("Host", "").rpartition(":")[0] not in NAMES:  # a page elsewhere whose name points here
            self.send_error(403)
        elif not hmac.compare_digest(self.path.encode("utf-8", "replace"), self.server.path.encode()):
            self.send_error(404)
        else:
            self.server.asked = time.monotonic()
            self.answer(self.server.content)

    def answer(self, content):
        self.send_response(200)
        for name, value in {
            "Content-Type": "text/html; charset=utf-8",
            "Content-Length": str(len(content)),
            "Content-Security-Policy": f"{POLICY}; frame-ancestors 'self'",
            "Cross-Origin-Resource-Policy": "same-origin",
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "no-referrer",
            "Cache-Control": "no-store",
        }.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_):
        """Nothing: a request is no news to the reader."""
