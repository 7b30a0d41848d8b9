"""Draw ONNX models with netron, without a network connection, for a cell or a browser tab.

A model becomes one page that holds netron's own files and the graph. The page runs in a sandbox
that may not contact any host. It works wherever the notebook does: in a remote JupyterLab, in a
saved page, on a machine without network.

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

    Tensors above 16 KiB are left out of the drawing; `labkit view` shows them too. Without netron a
    note says what is missing. In a headless run the drawing is written as a page of its own, and
    the cell shows a link to that page, unless `embedded` is true.

    path           an ONNX file
    further_paths  ONNX files of the models to its right
    embedded       True: save the drawing in the executed notebook, too. JupyterLab shows a saved
                   drawing only to the person who ran the notebook, so put a picture beside it for
                   others
    Raises         LabError for a file that is not an ONNX model
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
    """Write a drawing as a page into artifacts/graphs, and return HTML with a link to the page.

    The link is relative to the folder of the executed notebook, artifacts/executed/PROFILE.

    graphs  list of `Graph`
    """
    text = page(graphs)
    name = f"{short_digest(text)}.html"
    write_text(artifacts() / "graphs" / name, text)
    titles = cards.escape(" and ".join(graph.name for graph in graphs))
    return f'<a href="../../graphs/{name}">{titles}, drawn by netron</a>'


def whole_page(path: str | Path, *further_paths: str | Path) -> str:
    """Return one HTML page for a browser tab, with models side by side.

    path, further_paths  ONNX files, from left to right
    Raises               LabError for a file that is not an ONNX model; Unavailable without netron
    """
    graphs = [
        _read_graph(name, largest_tensor=_largest_tensor(Path(name)))
        for name in (path, *further_paths)
    ]
    return page(graphs)


def open_tab(address: str) -> None:
    """Open an address in a browser tab, if there is a display.

    Without a display nothing happens: a text browser would take over the terminal.
    """
    if sys.platform == "darwin" or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"):
        webbrowser.open_new_tab(address)


def _largest_tensor(path):
    """Return the size in bytes of the largest tensor of this file that is drawn with its values.

    path  an ONNX file: a large one is drawn without its large tensors
    """
    if path.is_file() and path.stat().st_size <= WHOLE_MODEL:
        return WHOLE_MODEL
    return IN_A_LARGE_MODEL


# ---- the graph: its operators, and its bytes without the large tensors


class Graph(NamedTuple):
    """A model ready to be drawn.

    name        the file's name
    packed      the serialized model as bytes, without the values of large tensors
    operators   names of the operators in the graph
    """

    name: str
    packed: bytes
    operators: set


def _read_graph(path, *, largest_tensor):
    """Read an ONNX file as a `Graph`. No other file is opened, even if the model refers to one.

    A graph that is wrong in other respects is read as it is.

    largest_tensor  in bytes: the values of larger tensors are left out
    Raises          LabError for a file that is not ONNX, or has no nodes
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
    """Remove the values of a tensor in place. Name, type and shape stay."""
    short = TensorProto(name=tensor.name, dims=tensor.dims, data_type=tensor.data_type)
    short.data_location = TensorProto.EXTERNAL
    short.external_data.add(key="location", value=_LEFT_OUT)
    tensor.CopyFrom(short)


# ---- the page: netron's files and the graphs in a sandbox without any way out


def page(graphs, *, height=None):
    """Return HTML that draws each `Graph` in a frame of its own, side by side.

    height  height of the frames in CSS pixels; None: as high as the browser's window
    Raises  Unavailable if netron is not installed
    """
    return cards.template("frames.html").render(graphs=graphs, height=height, document=_document)


def _document(graph):
    """Return an HTML document with netron, which draws one `Graph` when it is opened."""
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
    """Read the parts of netron's own files that a page needs. Returns a dictionary.

    Its keys: "style" is CSS and "body" is HTML, both as text. "modules" is netron's JavaScript, a
    text that `_packed` made. "operators" is a list of dicts that describe the operators of ONNX.
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
    """Return the folder of netron's files.

    Raises  Unavailable if netron is not installed
    """
    netron = packages.imported(
        "netron", problem="netron is not installed: the graph cannot be drawn."
    )
    return Path(netron.__file__).parent


def _packed(data):
    """Compress bytes with gzip, and return them as base64 text.

    The same bytes always give the same text, because gzip's time stamp is set to 0.
    """
    level = 9 if len(data) < _SHRINKS else 0
    return base64.b64encode(gzip.compress(data, level, mtime=0)).decode()
