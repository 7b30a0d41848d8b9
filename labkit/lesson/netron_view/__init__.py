"""netron on ONNX models, offline: in the notebook page without any server, or served privately on this machine.

A model becomes one self-contained page: netron's own files and the graph, packed together. The page runs in a sandbox
that may ask nobody for anything, so nothing has to be served to a notebook, and it works wherever the notebook does:
behind a remote JupyterLab, in a saved page, on a machine without network.

Source   netron, https://github.com/lutzroeder/netron, MIT licence
"""

from labkit.errors import Unavailable
from labkit.lesson import cards
from labkit.lesson.netron_view import graph
from labkit.lesson.netron_view.pages import page
from labkit.lesson.netron_view.serving import open_tab, serve, whole_page

__all__ = ["open_tab", "serve", "show", "whole_page"]
IN_A_NOTEBOOK = 16 * 2**10  # bytes; larger tensors would swell the saved notebook, and the graph is drawn without them


def show(path, *others, height=520):
    """Show models side by side: a table of what they hold, and below it netron, where somebody may be there to look.

    path    an ONNX file; `others` stand to its right
    height  of the drawing, in CSS pixels
    Tensors above 16 KiB are left out of the drawing; `labkit view` shows them too. Without netron the table stands
    alone, with the reason.
    Raises  LabError for a file that is not an ONNX model
    """
    from IPython.display import HTML, display

    graphs = [graph.read(name, largest_tensor=IN_A_NOTEBOOK) for name in (path, *others)]
    cards.show(summary(graphs))
    if not cards.interactive():
        return
    try:
        display(HTML(page(graphs, height=height)))
    except Unavailable as error:
        cards.show(cards.box(cards.COLOURS["inconclusive"], cards.escape(error.what), cards.escape(error.fix)))


def summary(graphs):
    """A card with one column for each graph."""
    facts = [one.facts() for one in graphs]
    lines = [[cards.escape(name), *(cards.escape(fact[name]) for fact in facts)] for name in facts[0]]
    title = "What the file holds" if len(graphs) == 1 else "What the files hold"
    return cards.box(cards.BLUE, title, cards.table(["", *(one.name for one in graphs)], lines))
