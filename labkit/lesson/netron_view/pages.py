"""One self-contained page: netron's files and the graphs, packed together, in a sandbox without any way out."""

import base64
import functools
import gzip
import html
import importlib.util
import json
import re
from pathlib import Path

from labkit.errors import Unavailable

# An import names only modules that stand before it. netron knows many formats; these are what it takes for ONNX.
MODULES = (
    *("text", "base", "dagre", "protobuf", "json", "tar", "zip", "flatbuffers", "worker"),
    *("onnx-proto", "onnx-schema", "onnx", "grapher", "view", "browser"),
)
# No request may leave the page, whatever a model or a later netron wants: the browser sees to it.
POLICY = (
    "default-src 'none'; script-src 'unsafe-inline' blob: data:; worker-src data:; style-src 'unsafe-inline'; "
    "img-src data: blob:; connect-src data:; base-uri 'none'; form-action 'none'"
)


def page(graphs, *, height=None):
    """HTML that draws each graph in a frame of its own, side by side.

    graphs  of `graph.read`
    height  of the frames in CSS pixels; all of the window when None
    Raises  Unavailable, where netron is not installed
    """
    frames = "".join(
        '<div style="flex:1;min-width:0;display:flex;flex-direction:column">'
        f'<b style="font:13px sans-serif;padding:2px">{html.escape(one.name)}</b>'
        f'<iframe sandbox="allow-scripts allow-downloads" title="{html.escape(one.name)}" '
        f'style="flex:1;border:1px solid #9994" srcdoc="{html.escape(document(one))}"></iframe></div>'
        for one in graphs
    )
    size = "100vh" if height is None else f"{height}px"
    return f'<div style="display:flex;gap:6px;height:{size}">{frames}</div>'


def document(graph):
    """netron's page with one graph in it, which draws itself when opened."""
    import jinja2

    environment = jinja2.Environment(loader=jinja2.PackageLoader("labkit", "templates"), autoescape=True)
    style, body = shell()
    weights = len(graph.packed) > 2**20  # they would take seconds and hardly shrink
    parts = {
        "modules": modules(),
        "operators": packed(operators(graph.operators)),
        "model": packed(graph.packed, level=0 if weights else 9),
    }
    return environment.get_template("netron.html").render(
        name=graph.name, policy=POLICY, style=style, body=body, packed=parts
    )


def folder():
    """Where netron's files are."""
    found = importlib.util.find_spec("netron")
    if found is None:
        raise Unavailable(
            "netron is not installed: the graph cannot be drawn.",
            expected="the package netron",
            found="no such package",
            fix="rm .venv/.ready && make .venv/.ready, or: .venv/bin/uv pip install netron",
        )
    return Path(found.origin).parent


def packed(data, *, level=9):
    """Bytes, compressed, as text."""
    return base64.b64encode(gzip.compress(data, compresslevel=level)).decode("ascii")


@functools.cache
def modules():
    """The sources of `MODULES` in their order, packed."""
    sources = {name: (folder() / f"{name}.js").read_text(encoding="utf-8") for name in MODULES}
    return packed(json.dumps(sources).encode("utf-8"))


@functools.cache
def shell():
    """(styles, body) of netron's own page."""
    text = (folder() / "index.html").read_text(encoding="utf-8")
    grapher = (folder() / "grapher.css").read_text(encoding="utf-8")
    own = re.search(r"<style>(.*)</style>", text, flags=re.DOTALL)[1]
    return f"{grapher}\n{own}", re.search(r"<body.*</body>", text, flags=re.DOTALL)[0]


def operators(used):
    """netron's descriptions of the operators in use, as JSON bytes; those of all operators take 5 MB."""
    kept = [entry for entry in described_operators() if entry["name"] in used]
    return json.dumps(kept).encode("utf-8")


@functools.cache
def described_operators():
    return json.loads((folder() / "onnx-metadata.json").read_text(encoding="utf-8"))
