"""Draw ONNX models with netron, offline: one self-contained page, for a cell or a browser tab.

A model becomes one page: netron's own files and the graph, packed together. The page runs in a
sandbox that may ask no host for anything. It works wherever the notebook does: behind a remote
JupyterLab, in a saved page, on a machine without network.

Source   netron, https://github.com/lutzroeder/netron, MIT licence
"""

import base64
import functools
import gzip
import json
import os
import re
import sys
import webbrowser
from pathlib import Path
from typing import NamedTuple

from onnx import TensorProto

from labkit.device import packages
from labkit.errors import LabError, Unavailable
from labkit.export.gate import parsed
from labkit.export.walk import inside
from labkit.files import artifacts, short_digest, write_text
from labkit.lesson import cards

IN_A_CELL = 520  # CSS pixels, the height of a drawing
# bytes; larger tensors are left out of a drawing, for they would swell the saved notebook
IN_A_NOTEBOOK = 16 * 2**10
WHOLE_MODEL = 256 * 2**20  # bytes; `labkit view` shows a model up to this size with all its weights
IN_A_LARGE_MODEL = 2**20  # bytes per tensor, in a model above that
# bytes; more than this are weights, which would take seconds to compress and hardly shrink
_SHRINKS = 2**24
_LEFT_OUT = "left out of this page"  # netron names this as the place of a tensor that is not there
# An import names only modules that stand before it. netron knows many formats; these are what it
# takes for ONNX.
_MODULES = ("text", "base", "dagre", "protobuf", "json", "tar", "zip", "flatbuffers", "worker", "onnx-proto",
            "onnx-schema", "onnx", "grapher", "view", "browser")  # fmt: skip


def show(path: str | Path, *further_paths: str | Path, embedded: bool = False) -> None:
    """Show models side by side in a notebook, drawn by netron; do nothing outside a notebook.

    path           an ONNX file
    further_paths  ONNX files of the models to its right
    embedded       also save the drawing in the executed notebook. JupyterLab shows a saved drawing
                   only to the person who ran the notebook: put a picture beside it for others
                   Tensors above 16 KiB are left out; `labkit view` shows them too. Without netron a
                   note says what is missing. In a headless run the drawing becomes a page of its
                   own, and the cell shows a link to that page, unless `embedded` is true.
    Raises  LabError for a file that is not an ONNX model
    """
    from IPython.display import HTML, display

    graphs = [_read_graph(name, largest_tensor=IN_A_NOTEBOOK) for name in (path, *further_paths)]
    if not cards.shell():
        return
    try:
        in_the_cell = embedded or cards.interactive()
        html = page(graphs, height=IN_A_CELL) if in_the_cell else _linked(graphs)
        display(HTML(html))
    except Unavailable as error:
        cards.show("note", error.what, error.fix)


def _linked(graphs):
    """Write the drawing as a page in artifacts/graphs, and return HTML that links to it.

    The link starts from the folder of the executed notebook, artifacts/executed/PROFILE.
    """
    text = page(graphs)
    name = f"{short_digest(text)}.html"
    write_text(artifacts() / "graphs" / name, text)
    titles = cards.escape(" and ".join(graph.name for graph in graphs))
    return f'<a href="../../graphs/{name}">{titles}, drawn by netron</a>'


def whole_page(path: str | Path, *further_paths: str | Path) -> str:
    """Return one HTML page for a browser tab, with the models side by side.

    Raises  LabError for a file that is not an ONNX model; Unavailable without netron
    """
    graphs = [
        _read_graph(name, largest_tensor=_largest_tensor(Path(name)))
        for name in (path, *further_paths)
    ]
    return page(graphs)


def open_tab(address: str) -> None:
    """Open a browser tab where there is a display.

    Without a display nothing happens: a browser of the terminal would take the terminal's place.
    """
    if sys.platform == "darwin" or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"):
        webbrowser.open_new_tab(address)


def _largest_tensor(path):
    """Return the size in bytes above which tensors of this file are left out of the drawing."""
    if path.is_file() and path.stat().st_size <= WHOLE_MODEL:
        return WHOLE_MODEL
    return IN_A_LARGE_MODEL


# ---- the graph: its operators, and its bytes without the large tensors


class Graph(NamedTuple):
    """A model ready to be drawn.

    name        the file's name
    packed      the model as serialized bytes, without the values of large tensors
    operators   names of the operators in the graph
    """

    name: str
    packed: bytes
    operators: set


def _read_graph(path, *, largest_tensor):
    """Read the `Graph` of an ONNX file. No other file is opened, whatever the model refers to.

    largest_tensor  bytes; the values of tensors above this size are left out
    Raises          LabError for a file that is not ONNX or has no nodes; a wrong graph is drawn as
                    it is
    """
    path = Path(path)
    model = parsed(path)
    if not model.graph.node:
        raise LabError(
            f"{path.name} has nothing to draw.", expected="a graph with nodes", found="none"
        )
    for tensor in inside(model, TensorProto):
        if tensor.ByteSize() > largest_tensor and not tensor.data_location:
            _empty(tensor)
    return Graph(path.name, model.SerializeToString(), {node.op_type for node in model.graph.node})


def _empty(tensor):
    """Remove a tensor's values, in place; name, type and shape stay."""
    short = TensorProto(name=tensor.name, dims=tensor.dims, data_type=tensor.data_type)
    short.data_location = TensorProto.EXTERNAL
    short.external_data.add(key="location", value=_LEFT_OUT)
    tensor.CopyFrom(short)


# ---- the page: netron's files and the graphs in a sandbox without any way out


def page(graphs, *, height=None):
    """Return HTML that draws each `Graph` in a frame of its own, side by side.

    height  of the frames in CSS pixels; None: as high as the browser's window
    Raises  Unavailable, where netron is not installed
    """
    return cards.template("frames.html").render(graphs=graphs, height=height, document=_document)


def _document(graph):
    """Return netron's page with one `Graph` in it, which draws itself when opened."""
    netron = _netron()
    # The descriptions of the graph's own operators only: those of all operators take 5 MB.
    operators = [entry for entry in netron["operators"] if entry["name"] in graph.operators]
    packed = {
        "modules": netron["modules"],
        "operators": _packed(json.dumps(operators).encode()),
        "model": _packed(graph.packed),
    }
    return cards.template("netron.html").render(
        name=graph.name, style=netron["style"], body=netron["body"], packed=packed
    )


@functools.cache
def _netron():
    """Read the parts of netron's own files that the page with a graph needs.

    Returns a dictionary: "style" is CSS and "body" is HTML, both as text; "modules" is the text of
    `_packed`, which holds netron's JavaScript; "operators" is the list of what ONNX's operators do.
    """

    def read(name):
        return (_netron_folder() / name).read_text(encoding="utf-8")

    page = read("index.html")
    sources = {name: read(f"{name}.js") for name in _MODULES}
    return {
        "style": read("grapher.css") + re.search(r"<style>(.*)</style>", page, flags=re.DOTALL)[1],
        "body": re.search(r"<body.*</body>", page, flags=re.DOTALL)[0],
        "modules": _packed(json.dumps(sources).encode()),
        "operators": json.loads(read("onnx-metadata.json")),
    }


def _netron_folder():
    """Return the folder of netron's files; Unavailable where netron is not installed."""
    netron = packages.imported(
        "netron", problem="netron is not installed: the graph cannot be drawn."
    )
    return Path(netron.__file__).parent


def _packed(data):
    """Compress bytes, and return them as base64 text.

    The same bytes always give the same text, because gzip's time stamp is left out.
    """
    level = 9 if len(data) < _SHRINKS else 0
    return base64.b64encode(gzip.compress(data, level, mtime=0)).decode()
