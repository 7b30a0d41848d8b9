"""Requests that must not be answered by a served graph: other files, other names of this machine, other methods."""

import http.client

METHODS = ("HEAD", "POST", "PUT", "DELETE", "OPTIONS", "TRACE", "CONNECT", "PROPFIND")
DECOYS = 10
SECRET = "private words"


def get(server, path, *, host=None, method="GET"):
    """(status, body, headers) of one request."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
    connection.request(method, path, headers={"Host": host or f"127.0.0.1:{server.port}"})
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer.status, body, answer.headers


def requests(server, folder):
    """[what `get` takes besides the server]: hostile ones. Ten decoys and a link come to lie beside the model."""
    paths = [{"path": path} for path in hostile_paths(server.path, folder)]
    methods = [{"path": server.path, "method": method} for method in METHODS]
    port = server.port
    names = ("evil.example", f"evil.example:{port}", f"127.0.0.1.evil.example:{port}", f"[::1]:{port}", "127.0.0.1")
    return paths + methods + [{"path": server.path, "host": name} for name in names]


def hostile_paths(below, folder):
    """Ways to ask for a file beside the model; `below` is the path under which the page is."""
    decoys = [f"decoy{number}.txt" for number in range(DECOYS)]
    for name in decoys:
        (folder / name).write_text(SECRET)
    (folder / "link.onnx").symlink_to(folder / decoys[0])
    for name in [*decoys, "link.onnx", "chain.onnx"]:
        yield from (f"/{name}", f"{below}{name}", f"{below}../{name}", f"{below}%2e%2e/{name}", f"/{folder}/{name}")
    yield from ("/", below[:-1], f"{below[:-2]}/", f"{below}?", f"{below}#", below.upper(), f"{below}%00")
    yield from ("/etc/passwd", "/../../../../etc/passwd", "/data/../chain.onnx", "http://127.0.0.1/", "*")
    yield "/" + "a" * 5000


def answered(server, request):
    """Whether a request gets the page, a decoy or anything else but a refusal."""
    status, body, _ = get(server, **request)
    return status < 400 or SECRET.encode() in body or b"iframe" in body
